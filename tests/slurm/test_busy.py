"""The real chain, from the corpus to the report, under every kind of a busy controller at the same time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.conftest import slurm, until
from tests.slurm.test_workflow import Workflow, workflow
from tests.workflow.conftest import differences, snapshot

__all__ = ["workflow"]  # a fixture

RESTARTS = 40.0  # seconds between two restarts of slurmctld
AWAY = 3.0  # seconds that it is away

pytestmark = pytest.mark.long  # the real chain three times on a busy controller; test_cluster.py has the small one


def test_the_real_chain(workflow: Callable[..., Workflow], complete: Path, cluster: Cluster) -> None:
    """15 % of calls fail, or hang for 30 s first, or there is a minute of silence; all the time slurmctld restarts."""
    runs = {
        name: workflow(name, {"gpus": 2}, remove=("corpus", "tokenize")) for name in ("failing", "hanging", "silenced")
    }
    runs["failing"].busy(percent=15, lost=15)
    runs["hanging"].busy(percent=15, hang=30)
    silent = runs["silenced"].busy()
    for run in runs.values():
        run.start("--retries=0")
    until("a task of the silenced run has ended", lambda: "Finished jobid" in runs["silenced"].output, 300)
    silent.touch()
    begin = last = time.monotonic()
    while any(run.process and run.process.poll() is None for run in runs.values()):
        assert time.monotonic() < begin + 1500
        if silent.exists() and time.monotonic() > begin + 60:
            silent.unlink()
        if time.monotonic() > last + RESTARTS:
            cluster.restart_controller(AWAY)
            last = time.monotonic()
        time.sleep(0.5)
    submitted = set()
    for name, run in runs.items():
        run.finish()
        assert differences(snapshot(run.folder), snapshot(complete)) == [], name
        assert "Error in rule" not in run.output, name
        numbers = re.findall(r"has been submitted with SLURM jobid (\d+)", run.output)
        submitted |= set(numbers)
        print(f"{name}: {len(numbers)} jobs, {len(run.unheard)} calls went wrong")
    # Every number that SLURM has given belongs to one of these jobs.
    newest = slurm("sbatch", "--parsable", "--chdir=/", "--output=/dev/null", "--wrap=true").strip()
    assert submitted == {str(number) for number in range(1, int(newest))}
