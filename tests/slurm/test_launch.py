"""The launcher in a real job: a warning queues the job again, a cancelled job stays cancelled."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.slurm.cluster import Cluster
from tests.slurm.conftest import ROOT, slurm, until


def submitted(folder: Path) -> str:
    """The number of a job that runs tests/slurm/stopping.py through the launcher, once it has begun."""
    folder.mkdir()
    line = f"exec {sys.executable} -m scripts.common.launch tests.slurm.stopping {folder}"
    options = [
        "-p",
        "cpu",
        "--time=5",
        "--requeue",
        "--open-mode=append",
        "--parsable",
        f"--chdir={ROOT}",
        f"--output={folder}/log",
    ]
    number = slurm("sbatch", *options, f"--wrap={line}").strip()
    until("the program at work", lambda: (folder / "starts").exists())
    return number


def fact(number: str, name: str) -> str:
    return re.search(rf"\b{name}=(\S+)", slurm("scontrol", "show", "job", number))[1]  # type: ignore[index]


def test_a_warned_job_is_queued_again_and_a_cancelled_one_is_not(cluster: Cluster, tmp_path: Path) -> None:
    warned, cancelled = submitted(tmp_path / "warned"), submitted(tmp_path / "cancelled")
    slurm("scancel", "--signal=USR1", warned)
    slurm("scancel", cancelled)
    until("the first job done", lambda: fact(warned, "JobState") == "COMPLETED", 200)
    assert fact(warned, "Restarts") == "1"
    assert (tmp_path / "warned/starts").read_text().splitlines() == ["0", "0"], "each start is a step of srun"
    assert "SLURM has queued the job again" in (tmp_path / "warned/log").read_text()
    assert (fact(cancelled, "JobState"), fact(cancelled, "Restarts")) == ("CANCELLED", "0")
    assert len((tmp_path / "cancelled/starts").read_text().splitlines()) == 1
