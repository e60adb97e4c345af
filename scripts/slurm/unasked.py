"""Snakemake, without the question that SLURM's executor asks a controller when it is imported, whichever executor a run has.

Its plug-in (2.8.0) asks `scontrol show config`, for the help of one option, and waits 10 s for a controller that is down. `python -m
scripts.slurm.unasked OPTIONS…` is `snakemake OPTIONS…`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Any
from unittest import mock

from scripts.workflow.config import ROOT


def command(module: str = "scripts.slurm.unasked") -> list[str]:
    """The words that start a module of the project, which a folder `scripts` of the folder of a run does not take the place of."""
    return [sys.executable, "-P", "-m", module]


def environment() -> dict[str, str]:
    """The environment in which `command` finds the project."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}


def import_executor() -> None:
    """Import the plug-in, if it is installed, with no answer to its question: the help then recommends less, and no more differs."""
    check_output = subprocess.check_output

    def without_scontrol(command: Any, *args: Any, **more: Any) -> Any:
        if command and command[0] == "scontrol":
            raise subprocess.CalledProcessError(1, command)
        return check_output(command, *args, **more)

    with mock.patch.object(subprocess, "check_output", without_scontrol), contextlib.suppress(ImportError):
        import snakemake_executor_plugin_slurm  # noqa: F401


def main(argv: list[str]) -> None:
    import_executor()
    from snakemake.cli import main as snakemake

    snakemake(argv)


if __name__ == "__main__":
    main(sys.argv[1:])
