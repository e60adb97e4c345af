"""Compile KenLM's programs, which train n-gram language models and ask them: what `make kenlm-tools` does, once, where there is a network.

The archive of kenlm (envs/lock-kenlm.txt, by its hash) holds the source; its package for Python is not used. Boost has to be there: its
headers and the libraries program_options, system, thread and unit_test_framework. The folder is there whole or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

from crawl2llm.chain.command_line import command_parser, print_error
from crawl2llm.core.console import format_duration, log, print_line, set_up_logging
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import scratch_folder
from crawl2llm.core.root import ROOT
from crawl2llm.filters.quality import tools
from crawl2llm.stages.compress.gguf_tools import build_environment, check_compilers, open_archive, run_command, run_pip

LOCK = ROOT / "envs/lock-kenlm.txt"
# What reads compressed text is left out, and what interpolates models.
LEFT_OUT_PACKAGES = ("ZLIB", "BZip2", "LibLZMA", "Eigen3")
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
    "BUILD_TESTING": "OFF",
    "COMPILE_TESTS": "OFF",
}
OPTIONS |= {f"CMAKE_DISABLE_FIND_PACKAGE_{name}": "ON" for name in LEFT_OUT_PACKAGES}
BOOST = (
    "KenLM is compiled with Boost, which is not there: install it (Debian, Ubuntu: apt install libboost-dev "
    "libboost-program-options-dev libboost-system-dev libboost-thread-dev libboost-test-dev; a cluster: module load boost), then "
    "run make kenlm-tools again"
)


def check_folder(folder: Path) -> None:
    """Raise InputError where there is no compiler, or where `folder` holds what is not KenLM's and would be lost."""
    check_compilers(os.environ, "make kenlm-tools")
    if (
        folder.exists()
        and not (folder / tools.VERSION_FILE).is_file()
        and (not folder.is_dir() or any(folder.iterdir()))
    ):
        raise InputError(f"{folder} is there and holds no KenLM: {tools.VARIABLE} has to name a folder of its own")


def make_tools(folder: Path) -> None:
    """Make the programs in `folder`, in place of what is there. Raises InputError as `check_folder`, pip and the compiler."""
    check_folder(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder.with_name(f"{folder.name}.{os.getpid()}.part")) as place:
        log.info("fetching kenlm %s", tools.VERSION)
        download = place / "archive"
        run_pip(
            "download",
            "--no-deps",
            "--require-hashes",
            "--no-binary",
            "kenlm",
            "-r",
            str(LOCK),
            "--dest",
            str(download),
        )
        with open_archive(next(download.glob("kenlm-*.tar.gz"))) as archive:
            archive.extractall(place / "source")
        source, build = next((place / "source").iterdir()), place / "build"
        environment = build_environment(place / "programs")
        try:
            run_command(
                ["cmake", "-S", str(source), "-B", str(build), *(f"-D{k}={v}" for k, v in OPTIONS.items())], environment
            )
        except InputError as error:
            raise InputError(BOOST if re.search("boost", str(error), re.IGNORECASE) else str(error)) from error
        log.info("compiling with %s compilers at a time", environment["CMAKE_BUILD_PARALLEL_LEVEL"])
        run_command(["cmake", "--build", str(build), "--target", *tools.PROGRAMS], environment)
        tools_folder = place / "made"
        tools_folder.mkdir()
        for name in tools.PROGRAMS:
            shutil.copy2(build / "bin" / name, tools_folder / name)
        shutil.copy2(source / "LICENSE", tools_folder)
        (tools_folder / tools.VERSION_FILE).write_text(f"{tools.VERSION}\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        tools_folder.rename(folder)


def main(argv: list[str] | None = None) -> int:
    parser = command_parser("python -m crawl2llm.filters.quality.kenlm_tools", __doc__, f"--folder {tools.FOLDER}")
    parser.add_argument(
        "--folder",
        type=Path,
        default=tools.tools_folder(),
        help=f"default: {tools.tools_folder()}, or what {tools.VARIABLE} names",
    )
    folder = parser.parse_args(argv).folder.absolute()
    set_up_logging("kenlm-tools")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves nothing behind
    start = time.monotonic()
    try:
        if tools.missing_reason(folder):
            make_tools(folder)
            log.info("made in %s", format_duration(time.monotonic() - start))
    except InputError as error:
        return print_error(str(error))
    print_line(
        f"KenLM {tools.VERSION} is in {folder}: language models can be trained (quality.lm) and asked (quality.kenlm)"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
