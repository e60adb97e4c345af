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

from crawl2llm.chain.command_line import described, fail
from crawl2llm.core.console import duration, log, put, setup
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import scratch
from crawl2llm.core.processors import cores
from crawl2llm.core.root import ROOT
from crawl2llm.stages.compress import gguf_support
from crawl2llm.stages.compress.programs import finished
from crawl2llm.training import memory

LOCK = ROOT / "envs/lock-gguf.txt"
BUILD_LOCK = ROOT / "envs/lock-gguf-build.txt"  # of cmake and ninja, where the machine has none
BINDINGS, SOURCE = "llama_cpp/", "vendor/llama.cpp/"  # in the archive
COMPILED = ("CMakeLists.txt", "LICENSE", "cmake/", "ggml/", "include/", "src/", "vendor/")  # of the source
CONVERTER = ("LICENSE", "convert_hf_to_gguf.py", "conversion/", "gguf-py/")
OFF = (
    "GGML_NATIVE",
    "LLAMA_OPENSSL",
    *(f"LLAMA_BUILD_{what}" for what in ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER", "APP")),
)
# cmake would ask the repository around it for a number and a commit.
OPTIONS = {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "ON", "LLAMA_BUILD_NUMBER": "0", "LLAMA_BUILD_COMMIT": "unknown",
           "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON", "CMAKE_INSTALL_RPATH": "$ORIGIN", **dict.fromkeys(OFF, "OFF")}  # fmt: skip
# Of the caller's environment, such as -march=native, these are left out.
FLAGS = ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS")
COMPILERS = (("C", "CC", ("cc", "gcc", "clang")), ("C++", "CXX", ("c++", "g++", "clang++")))
MEMORY = 1 << 30  # bytes that a compiler takes, at most
JOBS = 16  # compilers at a time, at most: a login node has other users
SHARE = re.compile(r"\[\s*(\d+)(?:/(\d+)|%)\]")  # `[12/90]` of ninja, `[ 13%]` of make
EVERY = 10.0  # seconds from one line of progress to the next


def check_compilers(environment: Mapping[str, str], again: str) -> None:
    """Raise InputError where there is no C or C++ compiler. again: what to run when there is."""
    path = environment.get("PATH")
    for language, variable, names in COMPILERS:
        asked = environment.get(variable, "").split()[:1]
        if not any(shutil.which(name, path=path) for name in asked or names):
            raise InputError(
                f"no {language} compiler ({', '.join(asked or names)}): install one (Debian, Ubuntu: apt install "
                f"build-essential; a cluster: module load gcc), or name it in {variable}, then run {again} again"
            )


def check(folder: Path, environment: Mapping[str, str]) -> None:
    """Raise InputError where there is no C or C++ compiler, or where `folder` holds what is not llama.cpp's and would be lost."""
    check_compilers(environment, "make gguf-tools")
    if folder.exists() and not (folder / "site/llama_cpp").is_dir() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} is there and holds no llama.cpp: {gguf_support.VARIABLE} has to name a folder of its own"
        )


def pip(*arguments: str) -> None:
    """Run this environment's pip. Raises InputError with its last words where it fails."""
    command = [sys.executable, "-m", "pip", *arguments[:1], "--quiet", "--disable-pip-version-check", *arguments[1:]]
    finished(command, f"pip {arguments[0]} failed")


def open_archive(path: Path) -> tarfile.TarFile:
    """An archive, whose files land below the folder that they are extracted into; Python 3.11.3 cannot see to that."""
    archive = tarfile.open(path)  # noqa: SIM115 - the caller's
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    return archive


def unpacked(archive: Path, place: Path) -> Path:
    """The folder, in `place`, of what is used of the archive."""
    wanted = (BINDINGS, *(f"{SOURCE}{name}" for name in {*COMPILED, *CONVERTER}))
    with open_archive(archive) as held:
        for member in held:
            name = member.name.partition("/")[2]
            if any(name.startswith(one) if one.endswith("/") else name == one for one in wanted):
                held.extract(member, place)
    return next(path for path in place.iterdir() if path.is_dir())


def programs(place: Path) -> dict[str, str]:
    """The environment in which cmake is called: without the caller's flags, and with cmake and ninja of pip where there are none."""
    environment = {name: value for name, value in os.environ.items() if name not in FLAGS}
    if not shutil.which("cmake") or not (shutil.which("ninja") or shutil.which("make")):
        log.info("cmake, or what it calls, is not on this machine: pip brings it for this once")
        pip(
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
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(jobs()))
    return environment


def jobs() -> int:
    """How many compilers run at a time: as the cores and the memory allow that this process has."""
    return max(1, min(cores(), JOBS, memory.available() // MEMORY))


def compiled(source: Path, place: Path, environment: Mapping[str, str]) -> Path:
    """The folder of the libraries, which are compiled in `place`. Raises InputError with what cmake or the compiler said."""
    options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    called(["cmake", "-S", str(source), "-B", str(place), *options], environment)
    called(["cmake", "--build", str(place), "--target", "llama"], environment)
    return place / "bin"


def called(command: list[str], environment: Mapping[str, str]) -> None:
    """Run a command and say how far it is. Raises InputError with its errors, or its last lines, where it fails."""
    with subprocess.Popen(
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout
        said = list(followed(process.stdout))
    if process.returncode:
        wrong = [line for line in said if re.search(r"\berror\b", line, re.IGNORECASE)][:5] or said[-8:]
        raise InputError(f"{' '.join(command[:2])} failed, status {process.returncode}:\n  " + "\n  ".join(wrong))


def followed(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a build; every few seconds one is logged that says how far it is."""
    begun = shown = time.monotonic()
    for line in lines:
        if (found := SHARE.match(line)) and (now := time.monotonic()) - shown >= EVERY:
            shown, done = now, int(found[1]) / int(found[2] or 100)
            log.info("compiling: %.0f %%, %s", done * 100, duration(now - begun))
        yield line.rstrip()


def put_together(folder: Path, held: Path, libraries: Path) -> None:
    """`folder` as the steps use it: `site/`, the bindings with their libraries, and `llama.cpp/`, the converter."""
    shutil.copytree(held / BINDINGS, folder / "site/llama_cpp", ignore=shutil.ignore_patterns("server", "__pycache__"))
    to = folder / "site/llama_cpp/lib"
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(libraries, to, symlinks=True)
    for name in CONVERTER:
        path = held / SOURCE / name
        copy = shutil.copytree if path.is_dir() else shutil.copy2
        copy(path, folder / "llama.cpp" / name)


def make(folder: Path) -> None:
    """Make the tools in `folder`, in place of what is there. Raises InputError as `check`, `pip` and `compiled`."""
    check(folder, os.environ)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch(folder.with_name(f"{folder.name}.{os.getpid()}.part")) as place:
        log.info("fetching llama_cpp_python %s, which holds llama.cpp (77 MB)", gguf_support.VERSION)
        got, made = place / "archive", place / "made"
        (made / "llama.cpp").mkdir(parents=True)
        pinned = ["--no-deps", "--require-hashes", "--no-binary", "llama_cpp_python", "-r", str(LOCK)]
        pip("download", *pinned, "--dest", str(got))
        held = unpacked(next(got.glob("llama_cpp_python-*.tar.gz")), place / "source")
        environment = programs(place / "programs")
        log.info(
            "compiling its library with %s compilers at a time; 3 minutes on two cores",
            environment["CMAKE_BUILD_PARALLEL_LEVEL"],
        )
        libraries = compiled(held / SOURCE, place / "build", environment)
        put_together(made, held, libraries)
        pip("install", "--no-deps", "--target", str(made / "site"), *map(str, got.glob("*.whl")))
        works(made)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def works(folder: Path) -> None:
    """Raise InputError where Python cannot load the library."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    command = [sys.executable, "-c", "import llama_cpp; llama_cpp.llama_backend_init()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise InputError(f"what was compiled cannot be loaded: {done.stderr.strip().splitlines()[-1:]}")


def main(argv: list[str] | None = None) -> int:
    parser = described("python -m crawl2llm.stages.compress.gguf_tools", __doc__, "--folder .gguf")
    parser.add_argument(
        "--folder",
        type=Path,
        default=gguf_support.tools(),
        help=f"default: {gguf_support.tools()}, or what {gguf_support.VARIABLE} names",
    )
    folder = parser.parse_args(argv).folder.absolute()
    setup("gguf-tools")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves nothing behind
    begun = time.monotonic()
    try:
        if gguf_support.missing(folder):
            make(folder)
            log.info("made in %s", duration(time.monotonic() - begun))
    except InputError as error:
        return fail(str(error))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    put(
        f"llama.cpp of llama_cpp_python {gguf_support.VERSION} is in {folder} ({size / 1e6:.0f} MB): models can be exported as GGUF"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
