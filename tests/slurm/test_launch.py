"""The launcher in a real job: a warning queues the job again, a cancelled job stays cancelled."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.slurm.cluster import Cluster
from tests.slurm.conftest import ROOT, slurm, until


def submitted(folder: Path, nodes: int) -> str:
    """The number of a job that runs tests/slurm/stopping.py through the launcher, once it has begun on all nodes."""
    folder.mkdir()
    line = f"exec {sys.executable} -m crawl2llm.training.launch --nodes {nodes} tests.slurm.stopping {folder}"
    options = ["-p", "cpu", f"--nodes={nodes}", "--time=5", "--requeue", "--open-mode=append", "--parsable"]
    number = slurm("sbatch", *options, f"--chdir={ROOT}", f"--output={folder}/log", f"--wrap={line}").strip()
    until("the program at work", lambda: len(list(folder.glob("starts-*"))) == nodes)
    return number


def fact(number: str, name: str) -> str:
    return re.search(rf"\b{name}=(\S+)", slurm("scontrol", "show", "job", number))[1]  # type: ignore[index]


def test_a_warned_job_is_queued_again_and_a_cancelled_one_is_not(cluster: Cluster, tmp_path: Path) -> None:
    """A warned job of two nodes, which do not end in the same moment, and a cancelled one."""
    warned, cancelled = submitted(tmp_path / "warned", 2), submitted(tmp_path / "cancelled", 1)
    slurm("scancel", "--signal=USR1", warned)
    slurm("scancel", cancelled)
    until("the first job's end", lambda: fact(warned, "JobState") in ("COMPLETED", "FAILED"), 200)
    assert (fact(warned, "JobState"), fact(warned, "Restarts")) == ("COMPLETED", "1")
    for node in (0, 1):
        starts = (tmp_path / f"warned/starts-{node}").read_text().splitlines()
        assert starts == ["0", "0"], "each start is a step of srun"
    assert "SLURM is asked to queue the job again" in (tmp_path / "warned/log").read_text()
    assert (fact(cancelled, "JobState"), fact(cancelled, "Restarts")) == ("CANCELLED", "0")
    assert len((tmp_path / "cancelled/starts-0").read_text().splitlines()) == 1
