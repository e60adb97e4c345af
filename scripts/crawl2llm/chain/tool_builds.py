"""Compile a tool of another environment from an archive of PyPI: what `make gguf-tools` and `make kenlm-tools` share.

The tool's folder is there whole or not at all.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from crawl2llm.chain.command_line import command_parser, print_error
from crawl2llm.core import free_memory
from crawl2llm.core.console import format_duration, log, print_line, set_up_logging
from crawl2llm.core.errors import InputError
from crawl2llm.core.external_tools import ExternalTool
from crawl2llm.core.manifest import scratch_folder
from crawl2llm.core.processors import usable_cores
from crawl2llm.core.programs import run_program
from crawl2llm.core.root import ROOT

BUILD_LOCK = ROOT / "envs/lock-gguf-build.txt"  # of cmake and ninja, where the machine has none
# Of the caller's environment, such as -march=native, these are left out.
FLAGS = ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS")
COMPILERS = (("C", "CC", ("cc", "gcc", "clang")), ("C++", "CXX", ("c++", "g++", "clang++")))
MEMORY = 1 << 30  # bytes that a compiler takes, at most
JOBS = 16  # compilers at a time, at most: a login node has other users
SHARE = re.compile(r"\[\s*(\d+)(?:/(\d+)|%)\]")  # `[12/90]` of ninja, `[ 13%]` of make
PROGRESS_SECONDS = 10.0  # seconds from one line of progress to the next


@dataclass(frozen=True, kw_only=True)
class Build:
    """How a tool is made."""

    tool: ExternalTool
    title: str  # what a folder of the tool holds, in messages
    compile: Callable[[Path], Path]  # in a scratch folder; returns the tool's folder in it
    success_text: Callable[[Path], str]  # said of the tool's folder at the end


def check_compilers(environment: Mapping[str, str], again: str) -> None:
    """Raise InputError if there is no C or C++ compiler. again: what to run when there is."""
    path = environment.get("PATH")
    for language, variable, names in COMPILERS:
        named_compiler = environment.get(variable, "").split()[:1]
        if not any(shutil.which(name, path=path) for name in named_compiler or names):
            raise InputError(
                f"no {language} compiler ({', '.join(named_compiler or names)}): install one (Debian, Ubuntu: apt install "
                f"build-essential; a cluster: module load gcc), or name it in {variable}, then run {again} again"
            )


def check_build(build: Build, folder: Path, environment: Mapping[str, str]) -> None:
    """Raise InputError if there is no C or C++ compiler, or where `folder` holds what is not the tool's and would be lost."""
    check_compilers(environment, f"make {build.tool.target}")
    is_tool = (folder / build.tool.mark).exists()
    if folder.exists() and not is_tool and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} is there and holds no {build.title}: {build.tool.variable} has to name a folder of its own"
        )


def make_tool(build: Build, folder: Path) -> None:
    """Make the tool in `folder`, in place of what is there. Raises InputError as `check_build`, pip and the compiler."""
    check_build(build, folder, os.environ)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder.with_name(f"{folder.name}.{os.getpid()}.part")) as place:
        tool_folder = build.compile(place)
        shutil.rmtree(folder, ignore_errors=True)
        tool_folder.rename(folder)


def run_pip(*arguments: str) -> None:
    """Run this environment's pip. Raises InputError with its last words where it fails."""
    command = [sys.executable, "-m", "pip", *arguments[:1], "--quiet", "--disable-pip-version-check", *arguments[1:]]
    run_program(command, f"pip {arguments[0]} failed")


def open_archive(path: Path) -> tarfile.TarFile:
    """An archive, whose files land below the folder that they are extracted into; Python 3.11.3 cannot see to that."""
    archive = tarfile.open(path)  # noqa: SIM115 - the caller's
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    return archive


def download_source(package: str, lock: Path, place: Path) -> Path:
    """The archive of a package's source, downloaded into `place` with the other packages of a lock, each by its hash."""
    pinned = ["--no-deps", "--require-hashes", "--no-binary", package, "-r", str(lock)]
    run_pip("download", *pinned, "--dest", str(place))
    return next(place.glob(f"{package}-*.tar.gz"))


def build_environment(place: Path) -> dict[str, str]:
    """The environment in which cmake is called: without the caller's flags, and with cmake and ninja of pip if there are none."""
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
    return max(1, min(usable_cores(), JOBS, free_memory.available_bytes() // MEMORY))


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


def run_build(build: Build, module: str, description: str | None, argv: list[str] | None) -> int:
    """The program that makes a tool, if it is not there; its exit status. module: the program's name; description: of its --help."""
    tool = build.tool
    parser = command_parser(f"python -m {module}", description, f"--folder {tool.default_folder}")
    default = tool.folder()
    parser.add_argument(
        "--folder", type=Path, default=default, help=f"default: {default}, or what {tool.variable} names"
    )
    folder = parser.parse_args(argv).folder.absolute()
    set_up_logging(tool.target)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves nothing behind
    start = time.monotonic()
    try:
        if tool.problem(folder):
            make_tool(build, folder)
            log.info("made in %s", format_duration(time.monotonic() - start))
    except InputError as error:
        return print_error(str(error))
    print_line(build.success_text(folder))
    return 0
