"""Snakemake, without the question that SLURM's executor asks a controller when it is imported, whichever executor a run has.

`python -m crawl2llm.slurm.local_plugin OPTIONS…` is `snakemake OPTIONS…`, also in an environment that `make install` did not make: in one
that it made, bare `snakemake` asks nothing either (crawl2llm_unasked.py).
"""

from __future__ import annotations

import os
import sys

from crawl2llm.core.root import CODE
from crawl2llm.slurm import crawl2llm_unasked  # noqa: F401 - from here on the import of the executor asks nothing


def module_command(module: str = "crawl2llm.slurm.local_plugin") -> list[str]:
    """The words that start a module of the project, which a folder `crawl2llm` in the folder of a run does not replace."""
    return [sys.executable, "-P", "-m", module]


def project_environment() -> dict[str, str]:
    """The environment in which `module_command` finds the project."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(CODE), os.environ.get("PYTHONPATH")]))}


def main(argv: list[str]) -> None:
    from snakemake.cli import main as snakemake

    snakemake(argv)


if __name__ == "__main__":
    main(sys.argv[1:])
