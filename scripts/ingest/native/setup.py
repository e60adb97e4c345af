"""Builds crawl2llm_native, which knows its source (scripts/ingest/compiled.py compares), and leaves nothing in this folder."""

from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = "crawl2llm_native.pyx"
mark = sha256(Path(__file__).with_name(SOURCE).read_bytes()).hexdigest()
with TemporaryDirectory() as folder:
    module = Extension("crawl2llm_native", [SOURCE], define_macros=[("BUILT_FROM", f'"{mark}"')])
    setup(
        ext_modules=cythonize([module], build_dir=folder, quiet=True),
        options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}},
    )
