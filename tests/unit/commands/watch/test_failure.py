"""The last words of a task that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl2llm.chain.exit_signals import RESUME_TEXT as AGAIN_TO_RESUME
from crawl2llm.commands.watch.failure import Failure, error_lines, failure_lines, status_in, was_ended_by_signal
from crawl2llm.core.console import RESTART_LINE


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["10:00:00 a.b 00001: error: no file x", "write another"], ["error: no file x", "write another"]),
        (["Traceback (most recent call last):", '  File "x"', "ValueError: odd"], ["ValueError: odd"]),
        (["10:00:00 a.b: 12/40 documents"], ["(no error in its log, which ends:) 12/40 documents"]),
        (
            [
                "10:00:00 a.b: stopped by a signal after step 36; the checkpoint is in c",
                "10:00:00 a.b: peak memory: 1 GB",
            ],
            ["stopped by a signal after step 36; the checkpoint is in c", AGAIN_TO_RESUME],
        ),
        ([], []),
    ],
)
def test_words(lines: list[str], expected: list[str]) -> None:
    assert error_lines(lines) == expected


def test_statuses() -> None:
    assert status_in("Command 'x' died with <Signals.SIGKILL: 9>.") == -9
    assert status_in("Command 'x' returned non-zero exit status 137.") == 137
    assert status_in("") is None


def test_the_error_of_an_earlier_start_is_not_why_this_one_failed(tmp_path: Path) -> None:
    own = tmp_path / "train.log"
    own.write_text(f"10:00:00 a.b: error: the disk is full\n11:00:00 a.b: {RESTART_LINE}\n11:00:01 a.b: resuming\n")
    lines = failure_lines(Failure("a.b", "", [own], "", status=-11))
    assert "SIGSEGV" in lines[1] and not any("disk" in line for line in lines)


def test_slurm_says_why(tmp_path: Path) -> None:
    """The program said nothing; SLURM's log and Snakemake's message do."""
    own, slurm = tmp_path / "own.log", tmp_path / "7.log"
    own.write_text("10:00:00 dedup.band 03: 1/3 shards\n")
    slurm.write_text("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n")
    said = "SLURM-job '7' failed, SLURM status is: 'OUT_OF_MEMORY'. Detailed failure reason unavailable."
    lines = failure_lines(Failure("dedup.band", "03", [own, slurm], said))
    assert lines[:3] == [
        "dedup.band 03 failed:",
        "  slurmstepd: error: Detected 1 oom_kill event in StepId=7.0",
        "  SLURM: job 7 ended as OUT_OF_MEMORY",
    ]
    assert "mem_mb" in lines[3] and lines[4:] == [f"  log: {own}", f"  log: {slurm}"]


def test_a_kill_inside_a_slurm_job(tmp_path: Path) -> None:
    own, slurm = tmp_path / "own.log", tmp_path / "7.log"
    own.write_text("10:00:00 dedup.band 03: 1/3 shards\n")
    slurm.write_text("oom_kill event\nError in rule x:\nCommand 'y' returned non-zero exit status 137.\n")
    lines = failure_lines(Failure("dedup.band", "03", [own, slurm], "SLURM-job '7' failed, SLURM status is: 'FAILED'"))
    assert lines[1].startswith(
        "  the program was ended by SIGKILL (signal 9), most likely out of memory: SLURM says so. Lower"
    )


def test_a_task_without_any_word(tmp_path: Path) -> None:
    assert failure_lines(Failure("a.b", "", [tmp_path / "none.log"]))[1] == "  it left no message"


def test_a_training_that_slurm_ended_for_memory_says_how_it_goes_on(tmp_path: Path) -> None:
    said = "SLURM-job '7' failed, SLURM status is: 'OUT_OF_MEMORY'. Detailed failure reason unavailable."
    lines = failure_lines(Failure("pretrain.train", "", [tmp_path / "none.log"], said))
    assert "mem_mb" in lines[-2] and "Start the same command again to resume" in lines[-2]


@pytest.mark.parametrize(
    ("status", "last", "told"),
    [
        (-15, "", True),
        (143, "", True),
        (85, "10:00:00 a.b: stopped by a signal after step 36; the checkpoint is in c", True),
        (-9, "", False),
        (1, "10:00:00 a.b: error: no file", False),
        (None, "", False),
    ],
)
def test_a_task_that_was_told_to_end_has_not_failed(tmp_path: Path, status: int | None, last: str, told: bool) -> None:
    (tmp_path / "log").write_text(f"10:00:00 a.b: step 1\n{last}\n")
    assert was_ended_by_signal(Failure("a.b", "", [tmp_path / "log"], status=status)) is told
