"""Compile llama.cpp, which exports as GGUF are made and run with: what `make gguf-tools` does, once, if there is a network.

The archive of llama_cpp_python (envs/lock-gguf.txt, by its hash) holds llama.cpp's source, its converter, and bindings for Python.
Only the library that these load is compiled: not the programs, the server and the chat parsing that come with it. It runs on
every processor with AVX2, not on this one alone. The folder is there whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from crawl2llm.chain.tool_builds import (
    Build,
    build_environment,
    download_source,
    open_archive,
    run_build,
    run_command,
    run_pip,
)
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.root import ROOT
from crawl2llm.stages.compress import gguf_support

LOCK = ROOT / "envs/lock-gguf.txt"
PACKAGE, SOURCE = "llama_cpp/", "vendor/llama.cpp/"  # in the archive
COMPILED_PARTS = ("CMakeLists.txt", "LICENSE", "cmake/", "ggml/", "include/", "src/", "vendor/")  # of the source
CONVERTER = ("LICENSE", "convert_hf_to_gguf.py", "conversion/", "gguf-py/")
CMAKE_OFF = (
    "GGML_NATIVE",
    "LLAMA_OPENSSL",
    *(f"LLAMA_BUILD_{what}" for what in ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER", "APP")),
)
# cmake would ask the repository around it for a number and a commit.
OPTIONS = {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "ON", "LLAMA_BUILD_NUMBER": "0", "LLAMA_BUILD_COMMIT": "unknown",
           "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON", "CMAKE_INSTALL_RPATH": "$ORIGIN", **dict.fromkeys(CMAKE_OFF, "OFF")}  # fmt: skip


def unpack_archive(archive: Path, place: Path) -> Path:
    """The folder, in `place`, of what is used of the archive."""
    wanted = (PACKAGE, *(f"{SOURCE}{name}" for name in {*COMPILED_PARTS, *CONVERTER}))
    with open_archive(archive) as tar:
        for member in tar:
            name = member.name.partition("/")[2]
            if any(name.startswith(member) if member.endswith("/") else name == member for member in wanted):
                tar.extract(member, place)
    return next(path for path in place.iterdir() if path.is_dir())


def compile_libraries(source: Path, place: Path, environment: Mapping[str, str]) -> Path:
    """The folder of the libraries, which are compiled in `place`. Raises InputError with what cmake or the compiler said."""
    options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    run_command(["cmake", "-S", str(source), "-B", str(place), *options], environment)
    run_command(["cmake", "--build", str(place), "--target", "llama"], environment)
    return place / "bin"


def assemble_tools(folder: Path, source: Path, libraries: Path) -> None:
    """`folder` as the steps use it: `site/`, the bindings with their libraries, and `llama.cpp/`, the converter."""
    shutil.copytree(
        source / PACKAGE, folder / gguf_support.BINDINGS, ignore=shutil.ignore_patterns("server", "__pycache__")
    )
    to = folder / gguf_support.BINDINGS / "lib"
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(libraries, to, symlinks=True)
    for name in CONVERTER:
        path = source / SOURCE / name
        copy = shutil.copytree if path.is_dir() else shutil.copy2
        copy(path, folder / "llama.cpp" / name)


def compile_tools(place: Path) -> Path:
    """The folder of the tools, compiled in `place`. Raises InputError as pip, cmake and the compiler."""
    log.info("fetching llama_cpp_python %s, which holds llama.cpp (77 MB)", gguf_support.VERSION)
    archive, tools = download_source("llama_cpp_python", LOCK, place / "archive"), place / "made"
    (tools / "llama.cpp").mkdir(parents=True)
    source = unpack_archive(archive, place / "source")
    environment = build_environment(place / "programs")
    log.info(
        "compiling its library with %s compilers at a time; 3 minutes on two cores",
        environment["CMAKE_BUILD_PARALLEL_LEVEL"],
    )
    libraries = compile_libraries(source / SOURCE, place / "build", environment)
    assemble_tools(tools, source, libraries)
    run_pip("install", "--no-deps", "--target", str(tools / "site"), *map(str, archive.parent.glob("*.whl")))
    check_library(tools)
    return tools


def check_library(folder: Path) -> None:
    """Raise InputError if Python cannot load the library."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    command = [sys.executable, "-c", "import llama_cpp; llama_cpp.llama_backend_init()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise InputError(f"what was compiled cannot be loaded: {done.stderr.strip().splitlines()[-1:]}")


def success_text(folder: Path) -> str:
    """What is in the folder of the tools, and what they are for."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return f"llama.cpp of llama_cpp_python {gguf_support.VERSION} is in {folder} ({size / 1e6:.0f} MB): models can be exported as GGUF"


BUILD = Build(tool=gguf_support.TOOLS, title="llama.cpp", compile=compile_tools, success_text=success_text)


def main(argv: list[str] | None = None) -> int:
    return run_build(BUILD, "crawl2llm.stages.compress.gguf_tools", __doc__, argv)


if __name__ == "__main__":
    raise SystemExit(main())
