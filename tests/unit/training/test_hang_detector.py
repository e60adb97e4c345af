"""Who hangs, by what processes wrote of themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.training import hang_detector, heartbeat


def said(**changes: Any) -> dict[str, Any]:
    usual = {
        "pid": 1,
        "node": "h",
        "main": 1,
        "step": 7,
        "phase": "update",
        "limit": 100.0,
        "least": 100.0,
        "number": 1,
    }
    return {**usual, "calls": {"0 0": 20}, **changes}


def beats(*calls: dict[str, int]) -> dict[str, hang_detector.Beat]:
    made = {}
    for rank, one in enumerate(calls):
        made[str(rank)] = hang_detector.Beat(0)
        made[str(rank)].record_beat(said(calls=one), 0)
    return made


def test_the_one_with_fewer_calls_is_behind() -> None:
    assert hang_detector.ranks_behind(beats({"0 0": 5}, {"0 0": 4}, {"0 0": 5})) == ["1"]
    assert hang_detector.ranks_behind(beats({"0 0": 5}, {"0 0": 5})) == []


def test_groups_are_compared_one_by_one() -> None:
    """2 waits in its pair for 3, and so 0 and 1 wait for 2 in the group of all."""
    found = beats({"0 0": 5, "1 0": 9}, {"0 0": 5, "1 0": 9}, {"0 0": 4, "2 2": 3}, {"0 0": 4, "2 2": 2})
    assert hang_detector.ranks_behind(found) == ["3"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(hang_detector.time, "monotonic", lambda: now[0])
    return now


def test_only_after_the_limit_and_where_nothing_moves(tmp_path: Path, clock: list[float]) -> None:
    watch = hang_detector.Watch(tmp_path, ["0"], 2)  # rank 1 is of another node
    (tmp_path / "0").write_text(json.dumps(said(calls={"0 0": 21})))
    (tmp_path / "1").write_text(json.dumps(said()))

    def wait(seconds: int, moving: bool = False) -> Any:
        found = None
        for _ in range(seconds):
            clock[0] += 1.01
            for rank, calls in (("0", 21), ("1", 20)):
                step = int(clock[0]) if moving and rank == "0" else 7
                (tmp_path / rank).write_text(json.dumps(said(calls={"0 0": calls}, number=clock[0], step=step)))
            if found := watch.find_hang():
                break
        return found

    assert wait(300, moving=True) is None  # slow, but not hung
    assert wait(80) is None
    (tmp_path / "1.hangs").write_text("rank 1 hangs in step 7")
    assert wait(20) == ("ended, since rank 1 hangs in step 7", "")
    (tmp_path / "1.hangs").unlink()
    found = wait(40)
    assert found and found[0].startswith("rank 1 (of 2 processes, on h") and "does not answer" in found[0]


def test_one_without_beats_is_not_given_the_time_to_work_alone(tmp_path: Path, clock: list[float]) -> None:
    """It was stopped in a checkpoint, for which the others wait for hours."""
    watch = hang_detector.Watch(tmp_path, ["0"], 2)
    (tmp_path / "0").write_text(json.dumps(said(limit=1e5)))
    (tmp_path / "1").write_text(json.dumps(said(limit=1e5)))
    for number in range(200):
        clock[0] += 1.01
        (tmp_path / "0").write_text(json.dumps(said(limit=1e5, number=number)))
        if found := watch.find_hang():
            break
    assert (
        found
        and found[0].startswith("rank 1 (of 2")
        and 90 + hang_detector.ANSWER_SECONDS < clock[0] < 95 + hang_detector.ANSWER_SECONDS
    )


def test_time_in_which_the_launcher_was_stopped_does_not_count(tmp_path: Path, clock: list[float]) -> None:
    watch = hang_detector.Watch(tmp_path, ["0"], 1)
    (tmp_path / "0").write_text(json.dumps(said()))
    clock[0] += 2
    assert watch.find_hang() is None
    clock[0] += 5000
    assert watch.find_hang() is None


def test_what_another_attempt_left_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "0").write_text(json.dumps(said()))
    hang_detector.Watch(tmp_path, ["0"], 1)
    assert not (tmp_path / "0").exists()


def test_what_a_killed_launcher_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    for name, age in (("old", 700.0), ("new", 500.0), ("young", 700.0)):
        (tmp_path / f".alive-{name}").mkdir()
        (tmp_path / f".alive-{name}/0").write_text("{}")
        for path in (tmp_path / f".alive-{name}/0", tmp_path / f".alive-{name}"):
            os.utime(path, (time.time() - age,) * 2)
    (tmp_path / ".alive-young/1").write_text("{}")
    (tmp_path / "step-000010").mkdir()
    hang_detector.Watch(tmp_path / ".alive-this", ["0"], 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".alive-new",
        ".alive-this",
        ".alive-young",
        "step-000010",
    ]


def test_the_main_threads_frames_alone() -> None:
    dump = (
        "Thread 0x00007f0000000001 (most recent call first):\n  File \"a\", line 1 in other\n\n"
        "Current thread 0x00007f0000000002 (most recent call first):\n  File \"b\", line 2 in main\n"
    )  # fmt: skip
    assert list(hang_detector._thread_frames(dump.splitlines(), 0x7F0000000002)) == ['  File "b", line 2 in main']


def test_a_stack_that_is_written_slowly_is_waited_for(tmp_path: Path) -> None:
    """As by a process on a busy machine, which is interrupted between two lines."""
    path = tmp_path / "0.stack"
    program = f"""import signal, threading, time
def write(*_):
    with open({str(path)!r}, "w") as file:
        file.write(f'Current thread 0x{{threading.get_ident():016x}}:\\n  File "a.py", line 1 in inner\\n')
        file.flush()
        time.sleep(1)
        file.write('  File "train.py", line 2 in train\\n  File "<frozen runpy>", line 3 in _run\\n')
signal.signal(signal.SIGUSR2, write)
print(threading.get_ident(), flush=True)
time.sleep(60)
"""
    path.touch()
    place = {**os.environ, heartbeat.FOLDER_VARIABLE: str(tmp_path), "RANK": "0"}
    process = subprocess.Popen([sys.executable, "-c", program], env=place, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    ident = int(process.stdout.readline())
    try:
        told = {"pid": process.pid, "main": ident, "outermost": "_run"}
        _, lines = hang_detector._read_stack(told, path, "0", str(tmp_path))
    finally:
        process.kill()
        process.wait()
    assert [line.split()[-1] for line in lines] == ["inner", "train", "_run"]
