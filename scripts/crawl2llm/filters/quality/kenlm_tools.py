"""Compile KenLM's programs, which train n-gram language models and ask them: what `make kenlm-tools` does, once, if there is a network.

The archive of kenlm (envs/lock-kenlm.txt, by its hash) holds the source; its package for Python is not used. Boost has to be there: its
headers and the libraries program_options, system, thread and unit_test_framework. The folder is there whole or not at all.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from crawl2llm.chain.tool_builds import Build, build_environment, download_source, open_archive, run_build, run_command
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.root import ROOT
from crawl2llm.filters.quality import tools

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


def compile_programs(place: Path) -> Path:
    """The folder of the programs, compiled in `place`. Raises InputError as pip, cmake and the compiler."""
    log.info("fetching kenlm %s", tools.VERSION)
    with open_archive(download_source("kenlm", LOCK, place / "archive")) as archive:
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
    programs = place / "made"
    programs.mkdir()
    for name in tools.PROGRAMS:
        shutil.copy2(build / "bin" / name, programs / name)
    shutil.copy2(source / "LICENSE", programs)
    (programs / tools.VERSION_FILE).write_text(f"{tools.VERSION}\n", encoding="utf-8")
    return programs


def success_text(folder: Path) -> str:
    """What is in the folder of the programs, and what they are for."""
    return (
        f"KenLM {tools.VERSION} is in {folder}: language models can be trained (quality.lm) and asked (quality.kenlm)"
    )


BUILD = Build(tool=tools.KENLM, title="KenLM", compile=compile_programs, success_text=success_text)


def main(argv: list[str] | None = None) -> int:
    return run_build(BUILD, "crawl2llm.filters.quality.kenlm_tools", __doc__, argv)


if __name__ == "__main__":
    raise SystemExit(main())
