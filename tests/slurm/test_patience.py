"""A question is asked until there is an answer; what is one, and what is silence."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from crawl2llm.core import retries

CONTACT = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def command(tmp_path: Path) -> str:
    """A program that fails with FAILURE (a file's text) until the file is gone; it counts its starts in `calls`."""
    path = tmp_path / "squeue"
    path.write_text(
        f"#!/bin/sh\necho call >>{tmp_path}/calls\n"
        f"[ -e {tmp_path}/hang ] && rm {tmp_path}/hang && sleep 60\n"
        f"[ -e {tmp_path}/failure ] && cat {tmp_path}/failure >&2 && exit 1\n"
        "echo 17\n"
    )
    path.chmod(0o755)
    return str(path)


def calls(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().split())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Short pauses; what a person is told."""
    told: list[str] = []
    monkeypatch.setattr(retries, "PAUSE", 0.1)
    monkeypatch.setattr(retries, "REPORT_AFTER", 0.2)
    monkeypatch.setattr(retries.silence, "report", told.append)
    return told


def test_asked_again_until_it_answers_and_told_once(command: str, tmp_path: Path, quick: list[str]) -> None:
    failure = tmp_path / "failure"
    failure.write_text(CONTACT)
    threading.Timer(1, failure.unlink).start()
    assert retries.ask_slurm(command) == "17\n"
    assert calls(tmp_path) >= 3
    assert len(quick) == 2 and CONTACT in quick[0] and quick[1].startswith("SLURM answers again, after ")


def test_a_call_that_hangs_is_cut_off(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "CALL", 0.5)
    (tmp_path / "hang").touch()
    begin = time.monotonic()
    assert retries.ask_slurm(command) == "17\n"
    assert calls(tmp_path) == 2 and time.monotonic() - begin < 20


def test_silence_has_a_limit(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failure").write_text(CONTACT)
    monkeypatch.setenv(retries.LIMIT_VARIABLE, "1")
    with pytest.raises(retries.SilentSlurmError, match=r"SLURM did not answer for 1 s .*Unable to contact"):
        retries.ask_slurm(command)
    assert calls(tmp_path) >= 3


def test_an_answer_is_an_answer(command: str, tmp_path: Path) -> None:
    (tmp_path / "failure").write_text("slurm_load_jobs error: Invalid job id specified\n")
    with pytest.raises(retries.SlurmError, match="Invalid job id specified"):
        retries.ask_slurm(command)
    assert calls(tmp_path) == 1
    with pytest.raises(retries.SlurmError, match="is not installed here"):
        retries.ask_slurm(str(tmp_path / "absent"))


def test_nobody_waits_for_it(command: str, tmp_path: Path) -> None:
    (tmp_path / "failure").write_text(CONTACT)
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(retries.RunStopped):
        retries.ask_slurm(command, stop=stop)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", True),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", True),
        ("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)", True),
        ("sbatch: error: Batch job submission failed: Requested time limit is invalid", True),
        ("sbatch: unrecognized option '--nosuch'", True),
        ("Slurm accounting storage is disabled", True),
        ("You are not running a supported accounting_storage plugin", True),
        ("Job has already finished for job 2\nslurm_suspend error: Job has already finished", True),
        ("scontrol: error: Access/permission denied", True),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", False),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", False),
        ("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", False),
        ("sbatch: error: Batch job submission failed: Invalid authentication credential", False),
        ("slurm_load_partitions: Unable to contact slurm controller (connect failure)", False),
        ("squeue: error: Slurm backup controller in standby mode", False),
        ("sacct: error: slurm_persist_conn_open: failed to connect; Unable to contact slurm database", False),
        ("sbatch: error: Batch job submission failed: Resource temporarily unavailable", False),
        ("something that nobody has seen before", False),
        ("status 1", False),
    ],
)
def test_answers_and_silence(error: str, answer: bool) -> None:
    assert retries.is_answer(error) == answer


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("sbatch --partition=standby --wrap=true", "sbatch: error: invalid partition specified: standby"),
        ("sbatch -A communication a.sh", "sbatch: error: Invalid account communication"),
    ],
)
def test_a_name_that_a_person_chose_is_no_silence(command: str, error: str) -> None:
    assert retries.is_answer(error, command)
    assert not retries.is_answer(f"{error}. Unable to contact slurm controller (connect failure)", command)


def test_a_client_without_a_cluster_is_an_answer() -> None:
    """It would be asked for ten minutes."""
    words = (
        "squeue: error: fetch_config: DNS SRV lookup failed squeue: error: Could not establish a configuration source"
    )
    with pytest.raises(retries.SlurmError, match="SLURM is not set up here") as caught:
        retries.ask_once("sh", "-c", f"echo '{words}' >&2; exit 1")
    assert "DNS SRV" not in str(caught.value) and "login node" in str(caught.value)
