"""Builds crawl2llm_native, which knows its source (stages/ingest/compiled.py compares), and leaves nothing in this folder."""

from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = sorted(Path(__file__).parent.glob("*.p[yx][xi]"))  # crawl2llm_native.pyx includes the others
mark = sha256(b"".join(sha256(path.read_bytes()).digest() for path in SOURCES)).hexdigest()
with TemporaryDirectory() as folder:
    module = Extension(
        "crawl2llm_native",
        ["crawl2llm_native.pyx"],
        define_macros=[("BUILT_FROM", f'"{mark}"')],
        extra_compile_args=["-O3"],
    )
    setup(
        ext_modules=cythonize([module], build_dir=folder, quiet=True),
        options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}},
    )
