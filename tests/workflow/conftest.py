"""Runs of the real workflow on tiny input, each in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.workflow import forked

ROOT = Path(__file__).resolve().parents[2]
TINY = Path(__file__).with_name("tiny.yaml")
# What a run writes that holds times, or what was there at some time, and so differs between runs.
TIMED = ("benchmarks/", "metrics.jsonl", "speed.json", "report.html", "report/now/", "tensorboard/", "wandb/")


def command(folder: Path, *options: str, cores: int = 2, config: Path = TINY) -> list[str]:
    """The command line of a run in `folder`."""
    return [
        sys.executable, "-m", "snakemake",
        "--snakefile", str(ROOT / "Snakefile"),
        "--profile", str(ROOT / "profiles" / "local"),
        "--directory", str(folder),
        "--configfile", str(config),
        "--cores", str(cores),
        *options,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    """The environment of a run: this interpreter first, no W&B service."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "WANDB_MODE": "disabled",
    }


# Runs a command in a network of its own that has loopback alone: a compute node without a network.
# The next word is a file for the list of the network's interfaces.
ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && ip -oneline link >"$0" && exec "$@"')


@cache
def can_be_alone() -> bool:
    """Whether this machine lets a process have a network of its own (root, Linux, iproute2)."""
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run([*ALONE, os.devnull, "true"], capture_output=True, check=False).returncode
    )


def run(folder: Path, *options: str, cores: int = 2, config: Path = TINY, network: bool = True) -> str:
    """Run the workflow to its end; returns what it printed, and fails the test with it where it failed."""
    line = command(folder, *options, cores=cores, config=config)
    if network:
        done = forked.snakemake(*line[3:], cwd=ROOT, env=environment())
    else:
        done = subprocess.run(
            [*ALONE, str(folder / "network"), *line],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file under results/ that must be the same in every run, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "results").rglob("*"))
        if path.is_file() and not any(mark in str(path.relative_to(folder)) for mark in TIMED)
    }


def differences(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    """The paths that are in one only, or differ."""
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


@pytest.fixture
def copy_of(complete: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes a copy of the complete folder (Snakemake's records included) to change."""

    def make() -> Path:
        target = tmp_path / "copy"
        shutil.copytree(complete, target, symlinks=True)
        return target

    return make
