"""Builds crawl2llm_native, which knows its source (scripts/ingest/compiled.py compares), and leaves nothing in this folder."""

from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = (
    "crawl2llm_native.pyx",
    "bounds.pxi",
    "lexbor.pxi",
    "measures.pxi",
    "reading.pxi",
)  # the first includes the others
mark = sha256(b"".join(sha256(Path(__file__).with_name(name).read_bytes()).digest() for name in SOURCES)).hexdigest()
with TemporaryDirectory() as folder:
    module = Extension(
        "crawl2llm_native", [SOURCES[0]], define_macros=[("BUILT_FROM", f'"{mark}"')], extra_compile_args=["-O3"]
    )
    setup(
        ext_modules=cythonize([module], build_dir=folder, quiet=True),
        options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}},
    )
