"""Compile llama.cpp, which exports as GGUF are made and run with: what `make gguf-tools` does, once, where there is a network.

The archive of llama_cpp_python (envs/lock-gguf.txt, by its hash) holds llama.cpp's source, its converter, and bindings for Python.
Only the library that these load is compiled: not the programs, the server and the chat parsing that come with it. It runs on
every processor with AVX2, not on this one alone. The folder is there whole or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from crawl2llm.chain.command_line import command_parser, print_error
from crawl2llm.core.console import format_duration, log, print_line, set_up_logging
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import scratch_folder
from crawl2llm.core.processors import usable_cores
from crawl2llm.core.root import ROOT
from crawl2llm.stages.compress import gguf_support
from crawl2llm.stages.compress.programs import run_program
from crawl2llm.training import memory

LOCK = ROOT / "envs/lock-gguf.txt"
BUILD_LOCK = ROOT / "envs/lock-gguf-build.txt"  # of cmake and ninja, where the machine has none
BINDINGS, SOURCE = "llama_cpp/", "vendor/llama.cpp/"  # in the archive
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
# Of the caller's environment, such as -march=native, these are left out.
FLAGS = ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS")
COMPILERS = (("C", "CC", ("cc", "gcc", "clang")), ("C++", "CXX", ("c++", "g++", "clang++")))
MEMORY = 1 << 30  # bytes that a compiler takes, at most
JOBS = 16  # compilers at a time, at most: a login node has other users
SHARE = re.compile(r"\[\s*(\d+)(?:/(\d+)|%)\]")  # `[12/90]` of ninja, `[ 13%]` of make
PROGRESS_SECONDS = 10.0  # seconds from one line of progress to the next


def check_compilers(environment: Mapping[str, str], again: str) -> None:
    """Raise InputError where there is no C or C++ compiler. again: what to run when there is."""
    path = environment.get("PATH")
    for language, variable, names in COMPILERS:
        named_compiler = environment.get(variable, "").split()[:1]
        if not any(shutil.which(name, path=path) for name in named_compiler or names):
            raise InputError(
                f"no {language} compiler ({', '.join(named_compiler or names)}): install one (Debian, Ubuntu: apt install "
                f"build-essential; a cluster: module load gcc), or name it in {variable}, then run {again} again"
            )


def check_build(folder: Path, environment: Mapping[str, str]) -> None:
    """Raise InputError where there is no C or C++ compiler, or where `folder` holds what is not llama.cpp's and would be lost."""
    check_compilers(environment, "make gguf-tools")
    if folder.exists() and not (folder / "site/llama_cpp").is_dir() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} is there and holds no llama.cpp: {gguf_support.VARIABLE} has to name a folder of its own"
        )


def run_pip(*arguments: str) -> None:
    """Run this environment's pip. Raises InputError with its last words where it fails."""
    command = [sys.executable, "-m", "pip", *arguments[:1], "--quiet", "--disable-pip-version-check", *arguments[1:]]
    run_program(command, f"pip {arguments[0]} failed")


def open_archive(path: Path) -> tarfile.TarFile:
    """An archive, whose files land below the folder that they are extracted into; Python 3.11.3 cannot see to that."""
    archive = tarfile.open(path)  # noqa: SIM115 - the caller's
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    return archive


def unpack_archive(archive: Path, place: Path) -> Path:
    """The folder, in `place`, of what is used of the archive."""
    wanted = (BINDINGS, *(f"{SOURCE}{name}" for name in {*COMPILED_PARTS, *CONVERTER}))
    with open_archive(archive) as tar:
        for member in tar:
            name = member.name.partition("/")[2]
            if any(name.startswith(member) if member.endswith("/") else name == member for member in wanted):
                tar.extract(member, place)
    return next(path for path in place.iterdir() if path.is_dir())


def build_environment(place: Path) -> dict[str, str]:
    """The environment in which cmake is called: without the caller's flags, and with cmake and ninja of pip where there are none."""
    environment = {name: value for name, value in os.environ.items() if name not in FLAGS}
    if not shutil.which("cmake") or not (shutil.which("ninja") or shutil.which("make")):
        log.info("cmake, or what it calls, is not on this machine: pip brings it for this once")
        run_pip(
            "install",
            "--no-deps",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--target",
            str(place),
            "-r",
            str(BUILD_LOCK),
        )
        environment["PATH"] = f"{place / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
        environment["PYTHONPATH"] = str(place)  # its programs are Python's
    if shutil.which("ninja", path=environment["PATH"]):
        environment.setdefault("CMAKE_GENERATOR", "Ninja")
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(compiler_count()))
    return environment


def compiler_count() -> int:
    """How many compilers run at a time: as the cores and the memory allow that this process has."""
    return max(1, min(usable_cores(), JOBS, memory.available_bytes() // MEMORY))


def compile_libraries(source: Path, place: Path, environment: Mapping[str, str]) -> Path:
    """The folder of the libraries, which are compiled in `place`. Raises InputError with what cmake or the compiler said."""
    options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    run_command(["cmake", "-S", str(source), "-B", str(place), *options], environment)
    run_command(["cmake", "--build", str(place), "--target", "llama"], environment)
    return place / "bin"


def run_command(command: list[str], environment: Mapping[str, str]) -> None:
    """Run a command and say how far it is. Raises InputError with its errors, or its last lines, where it fails."""
    with subprocess.Popen(
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout
        output = list(lines_with_progress(process.stdout))
    if process.returncode:
        wrong = [line for line in output if re.search(r"\berror\b", line, re.IGNORECASE)][:5] or output[-8:]
        raise InputError(f"{' '.join(command[:2])} failed, status {process.returncode}:\n  " + "\n  ".join(wrong))


def lines_with_progress(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a build; every few seconds one is logged that says how far it is."""
    start = logged = time.monotonic()
    for line in lines:
        if (progress := SHARE.match(line)) and (now := time.monotonic()) - logged >= PROGRESS_SECONDS:
            logged, done = now, int(progress[1]) / int(progress[2] or 100)
            log.info("compiling: %.0f %%, %s", done * 100, format_duration(now - start))
        yield line.rstrip()


def assemble_tools(folder: Path, source: Path, libraries: Path) -> None:
    """`folder` as the steps use it: `site/`, the bindings with their libraries, and `llama.cpp/`, the converter."""
    shutil.copytree(
        source / BINDINGS, folder / "site/llama_cpp", ignore=shutil.ignore_patterns("server", "__pycache__")
    )
    to = folder / "site/llama_cpp/lib"
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(libraries, to, symlinks=True)
    for name in CONVERTER:
        path = source / SOURCE / name
        copy = shutil.copytree if path.is_dir() else shutil.copy2
        copy(path, folder / "llama.cpp" / name)


def make_tools(folder: Path) -> None:
    """Make the tools in `folder`, in place of what is there. Raises InputError as `check_build`, `run_pip` and `compile_libraries`."""
    check_build(folder, os.environ)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder.with_name(f"{folder.name}.{os.getpid()}.part")) as place:
        log.info("fetching llama_cpp_python %s, which holds llama.cpp (77 MB)", gguf_support.VERSION)
        got, tools = place / "archive", place / "made"
        (tools / "llama.cpp").mkdir(parents=True)
        pinned = ["--no-deps", "--require-hashes", "--no-binary", "llama_cpp_python", "-r", str(LOCK)]
        run_pip("download", *pinned, "--dest", str(got))
        source = unpack_archive(next(got.glob("llama_cpp_python-*.tar.gz")), place / "source")
        environment = build_environment(place / "programs")
        log.info(
            "compiling its library with %s compilers at a time; 3 minutes on two cores",
            environment["CMAKE_BUILD_PARALLEL_LEVEL"],
        )
        libraries = compile_libraries(source / SOURCE, place / "build", environment)
        assemble_tools(tools, source, libraries)
        run_pip("install", "--no-deps", "--target", str(tools / "site"), *map(str, got.glob("*.whl")))
        check_library(tools)
        shutil.rmtree(folder, ignore_errors=True)
        tools.rename(folder)


def check_library(folder: Path) -> None:
    """Raise InputError where Python cannot load the library."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    command = [sys.executable, "-c", "import llama_cpp; llama_cpp.llama_backend_init()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise InputError(f"what was compiled cannot be loaded: {done.stderr.strip().splitlines()[-1:]}")


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("python -m crawl2llm.stages.compress.gguf_tools", __doc__, "--folder .gguf")
    parser.add_argument(
        "--folder",
        type=Path,
        default=gguf_support.tools_folder(),
        help=f"default: {gguf_support.tools_folder()}, or what {gguf_support.VARIABLE} names",
    )
    folder = parser.parse_args(argv).folder.absolute()
    set_up_logging("gguf-tools")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves nothing behind
    start = time.monotonic()
    try:
        if gguf_support.tools_problem(folder):
            make_tools(folder)
            log.info("made in %s", format_duration(time.monotonic() - start))
    except InputError as error:
        return print_error(str(error))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    print_line(
        f"llama.cpp of llama_cpp_python {gguf_support.VERSION} is in {folder} ({size / 1e6:.0f} MB): models can be exported as GGUF"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
