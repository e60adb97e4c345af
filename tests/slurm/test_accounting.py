"""The second tier: the profile on a cluster with slurmdbd and MariaDB, where sacct, sacctmgr and sshare answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

from crawl2llm.commands import status
from tests.slurm.cluster import NAME, Cluster
from tests.slurm.conftest import Drive, own_profile, slurm
from tests.slurm.machine import obstacle


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A running cluster with accounting; skips with the reason where there cannot be one."""
    if reason := obstacle(accounting=True):
        pytest.skip(reason)
    with Cluster(accounting=True) as made:
        yield made


def test_hours_and_account_are_slurms_own(cluster: Cluster, drive: Callable[..., Drive]) -> None:
    run = drive({"language_score": 1, "evaluate_model": 2}, {"evaluate_model": 30})
    run.profile = own_profile(run.folder / "site", account=NAME)
    (run.folder / "fail-evaluate_model").touch()  # a failed attempt has cost its hours, too
    run.start().finish()
    assert re.search(rf"Account={NAME} ", slurm("scontrol", "show", "job", run.table("starts")[0][3]))
    text = "\n".join(status.status_lines(run.folder, lines=3))
    assert "(from sacct)" in text, text
    hours = status.hours_by_sacct(run.folder.resolve(), datetime.now() - timedelta(hours=1))
    assert hours is not None and set(hours) == {"evaluate_model"}, "the other rule had no GPU"
    ends = {row[3]: float(row[0]) for row in run.table("ends")}
    spent = [
        ends[row[3]] - float(row[0]) for row in run.table("starts") if row[1] == "evaluate_model" and row[3] in ends
    ]
    assert len(spent) == 2
    assert sum(spent) < hours["evaluate_model"] * 3600 < sum(spent) + 3 * 30


def test_a_wrong_account_is_refused(cluster: Cluster, drive: Callable[..., Drive]) -> None:
    run = drive({"language_score": 1})
    run.profile = own_profile(run.folder / "site", account="def-nobody")
    assert run.start().end() == 1
    assert f"account 'def-nobody' is not one of yours: {NAME}" in run.output
    assert "has been submitted" not in run.output and not run.queue()
