"""One run drives a folder's jobs, also across login nodes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from crawl2llm.slurm import guard


def left(path: Path, host: str, silent: float) -> None:
    """What a run on `host` wrote `silent` seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"host": host, "pid": 17}), encoding="utf-8")
    os.utime(path, (time.time() - silent,) * 2)


def test_a_living_run_on_another_login_node_is_not_disturbed(tmp_path: Path) -> None:
    path = tmp_path / ".snakemake" / "slurm-driver.json"
    left(path, "login2", silent=30)
    with pytest.raises(guard.GuardError, match=r"a run on login2 \(process 17\) works in .* and was alive 30 s ago"):
        guard.claim_folder(path, host="login1")
    assert json.loads(path.read_text(encoding="utf-8"))["host"] == "login2"


@pytest.mark.parametrize(
    ("host", "silent"), [("login2", guard.DEAD_SECONDS + 1), ("login1", 0)], ids=["dead", "this host"]
)
def test_a_dead_run_is_followed(tmp_path: Path, host: str, silent: float) -> None:
    path = tmp_path / ".snakemake" / "slurm-driver.json"
    left(path, host, silent)
    guard.claim_folder(path, host="login1")
    assert json.loads(path.read_text(encoding="utf-8")) == {"host": "login1", "pid": os.getpid()}
    assert guard.seconds_since_written(path) < 5


def test_a_torn_file_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "slurm-driver.json"
    path.write_text('{"host": "log', encoding="utf-8")
    guard.claim_folder(path, host="login1")
    assert json.loads(path.read_text(encoding="utf-8"))["host"] == "login1"


def test_a_file_that_cannot_be_read_does_not_say_that_nobody_is_there(tmp_path: Path) -> None:
    path = tmp_path / "slurm-driver.json"
    path.symlink_to(path)  # as a stale handle of a file server: an error that is not "there is none"
    with pytest.raises(guard.GuardError, match="cannot be read, and so whether another run works here"):
        guard.claim_folder(path, host="login1")
    assert path.is_symlink()


def test_the_claim_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / ".snakemake" / "slurm-driver.json"
    left(path, "login1", silent=0)
    before = path.open(encoding="utf-8")
    guard.claim_folder(path, host="login1")
    assert json.loads(before.read())["pid"] == 17, "who reads meanwhile reads what was there"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
