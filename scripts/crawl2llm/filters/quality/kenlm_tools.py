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

from crawl2llm.chain.command_line import described, fail
from crawl2llm.core.console import duration, log, put, setup
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import scratch
from crawl2llm.core.root import ROOT
from crawl2llm.filters.quality import tools
from crawl2llm.stages.compress.gguf_tools import called, check_compilers, open_archive, pip, programs

LOCK = ROOT / "envs/lock-kenlm.txt"
# What reads compressed text is left out, and what interpolates models.
LACKING = ("ZLIB", "BZip2", "LibLZMA", "Eigen3")
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
    "BUILD_TESTING": "OFF",
    "COMPILE_TESTS": "OFF",
}
OPTIONS |= {f"CMAKE_DISABLE_FIND_PACKAGE_{name}": "ON" for name in LACKING}
BOOST = (
    "KenLM is compiled with Boost, which is not there: install it (Debian, Ubuntu: apt install libboost-dev "
    "libboost-program-options-dev libboost-system-dev libboost-thread-dev libboost-test-dev; a cluster: module load boost), then "
    "run make kenlm-tools again"
)


def check(folder: Path) -> None:
    """Raise InputError where there is no compiler, or where `folder` holds what is not KenLM's and would be lost."""
    check_compilers(os.environ, "make kenlm-tools")
    if folder.exists() and not (folder / tools.MADE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there and holds no KenLM: {tools.VARIABLE} has to name a folder of its own")


def make(folder: Path) -> None:
    """Make the programs in `folder`, in place of what is there. Raises InputError as `check`, pip and the compiler."""
    check(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch(folder.with_name(f"{folder.name}.{os.getpid()}.part")) as place:
        log.info("fetching kenlm %s", tools.VERSION)
        got = place / "archive"
        pip("download", "--no-deps", "--require-hashes", "--no-binary", "kenlm", "-r", str(LOCK), "--dest", str(got))
        with open_archive(next(got.glob("kenlm-*.tar.gz"))) as held:
            held.extractall(place / "source")
        source, build = next((place / "source").iterdir()), place / "build"
        environment = programs(place / "programs")
        try:
            called(
                ["cmake", "-S", str(source), "-B", str(build), *(f"-D{k}={v}" for k, v in OPTIONS.items())], environment
            )
        except InputError as error:
            raise InputError(BOOST if re.search("boost", str(error), re.IGNORECASE) else str(error)) from error
        log.info("compiling with %s compilers at a time", environment["CMAKE_BUILD_PARALLEL_LEVEL"])
        called(["cmake", "--build", str(build), "--target", *tools.PROGRAMS], environment)
        made = place / "made"
        made.mkdir()
        for name in tools.PROGRAMS:
            shutil.copy2(build / "bin" / name, made / name)
        shutil.copy2(source / "LICENSE", made)
        (made / tools.MADE).write_text(f"{tools.VERSION}\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def main(argv: list[str] | None = None) -> int:
    parser = described("python -m crawl2llm.filters.quality.kenlm_tools", __doc__, f"--folder {tools.FOLDER}")
    parser.add_argument(
        "--folder",
        type=Path,
        default=tools.folder(),
        help=f"default: {tools.folder()}, or what {tools.VARIABLE} names",
    )
    folder = parser.parse_args(argv).folder.absolute()
    setup("kenlm-tools")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves nothing behind
    begun = time.monotonic()
    try:
        if tools.missing(folder):
            make(folder)
            log.info("made in %s", duration(time.monotonic() - begun))
    except InputError as error:
        return fail(str(error))
    put(f"KenLM {tools.VERSION} is in {folder}: language models can be trained (quality.lm) and asked (quality.kenlm)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
