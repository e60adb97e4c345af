"""Shards at once: the same bytes, failures by name, no process that outlives its task."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import command_line
from crawl2llm.core import console
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.parent_watch import process_start_ticks
from crawl2llm.filters.language import score
from crawl2llm.formats.documents import parquet_file
from tests.unit import making

STEP = "language.score"
SHARDS = [f"{number:05d}" for number in range(5)]


@pytest.fixture
def ingested(tmp_path: Path) -> Path:
    """Five shards of documents."""
    for number, shard in enumerate(SHARDS):
        rows = [making.document(f"{number}-{n}", f"Page {n} of shard {number} is in English.") for n in range(20)]
        making.documents(tmp_path / "extract", rows, shard=shard)
    making.checked(tmp_path / "check", *sorted((tmp_path / "extract").glob("0*.manifest.json")))
    return tmp_path / "extract"


def scored(ingested: Path, folder: Path, at_once: int, log: Path | None = None) -> int:
    documents = str(ingested / "00000.manifest.json")
    verdicts = str(ingested.parent / "check/manifest.json")
    argv = ["--config", making.config(STEP), "--documents", documents, "--verdicts", verdicts, "--also", *SHARDS[1:]]
    argv += ["--at-once", str(at_once), "--manifest", str(folder / "00000.manifest.json")]
    command_line._read_input.cache_clear()
    return score.main([*argv, *(["--log", str(log)] if log else [])])


def test_the_same_bytes_with_any_number_of_processes(ingested: Path, tmp_path: Path) -> None:
    for at_once in (1, 2, 8):
        assert scored(ingested, tmp_path / str(at_once), at_once) == 0
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert len(names) == 4 * len(SHARDS)
    for name in names:
        one = (tmp_path / "1" / name).read_bytes()
        assert all((tmp_path / at_once / name).read_bytes() == one for at_once in "28"), name


def test_what_all_shards_read_is_told_at_the_end(ingested: Path, tmp_path: Path) -> None:
    assert scored(ingested, tmp_path / "out", 2, tmp_path / "a.log") == 0
    assert "language.score 00000: in 100, kept 100\n" in (tmp_path / "a.log").read_text()


def test_a_shard_that_fails_is_named_and_the_others_stay(ingested: Path, tmp_path: Path) -> None:
    file = parquet_file(ingested / "00003.manifest.json")
    right = file.read_bytes()
    file.write_bytes(b"x" * len(right))
    assert scored(ingested, tmp_path / "out", 2, tmp_path / "a.log") == 1
    said = (tmp_path / "a.log").read_text().splitlines()[-1]
    assert "error: shard 00003: " in said and "00003.parquet: not a readable Parquet file" in said
    assert "1 of 5 shards failed; finished shards are kept" in said
    assert not (tmp_path / "out/00003.manifest.json").exists()
    made = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("0*.parquet")}
    assert {"00001.parquet", "00002.parquet"} <= made.keys()

    file.write_bytes(right)
    assert scored(ingested, tmp_path / "out", 2) == 0
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("0*.parquet")}
    assert len(after) == len(SHARDS) and all(after[name] == stamp for name, stamp in made.items())


def task(folder: Path, body: Any, *also: str, at_once: int = 2, log: Path | None = None) -> int:
    """A step with this body, over shards."""
    made = command_line.step_parser(STEP, "What it does.", "")
    argv = ["--config", making.config(STEP), "--also", *also, "--at-once", str(at_once)]
    return command_line.run_step(
        made, body, [*argv, "--manifest", str(folder / "00000.manifest.json"), *(["--log", str(log)] if log else [])]
    )


def test_a_shard_that_is_killed_is_named_with_the_signal(tmp_path: Path) -> None:
    def body(args: argparse.Namespace, _: Any, __: Manifest) -> list[Path]:
        if args.manifest.name.startswith("00001"):
            os.kill(os.getpid(), signal.SIGKILL)
        return []

    assert task(tmp_path, body, "00001", "00002", at_once=1, log=tmp_path / "a.log") == 1
    assert "error: shard 00001 was ended by SIGKILL (signal 9)" in (tmp_path / "a.log").read_text()
    assert not (tmp_path / "00002.manifest.json").exists(), "begun after a failure"


def test_an_error_of_the_program_leaves_its_traceback(tmp_path: Path) -> None:
    def body(*_: Any) -> list[Path]:
        raise ZeroDivisionError("of course")

    assert task(tmp_path, body, "00001", log=tmp_path / "a.log") == 1
    text = (tmp_path / "a.log").read_text()
    assert "Traceback" in text and "in body" in text and "shard 00001: ZeroDivisionError: of course" in text


def test_a_shard_works_in_a_process_of_its_own(tmp_path: Path) -> None:
    """What one shard leaves in memory is not there for the next, nor in the task's process."""
    held: list[str] = []

    def body(args: argparse.Namespace, _: Any, manifest: Manifest) -> list[Path]:
        held.append(args.manifest.name)
        manifest.summary = {"held": len(held)}
        return []

    assert task(tmp_path, body, "00001", "00002", at_once=1) == 0
    assert not held
    assert [Manifest.read_unchecked(path).summary["held"] for path in sorted(tmp_path.glob("*manifest.json"))] == [
        1,
        1,
        1,
    ]


def test_progress_is_that_of_all_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    board = console.Board(["00000", "00001", "00002", "00003"])
    monkeypatch.setattr(console, "board", board)
    assert board.status_line() == "0/4 shards"
    for shard, done in (("00000", 100), ("00001", 50)):
        board.begin_shard(shard)
        console.Progress(100, "documents").add(done)
    board.begin_shard("00000")
    board.note_progress(100, 100, "documents")
    board.end_shard(worked=True)
    assert board.status_line(board.start + 30) == "1/4 shards, 150 documents, 5.0/s, 50s left"
    board.begin_shard("00002")
    board.end_shard(worked=False)  # was there
    assert board.status_line(board.start + 30) == "2/4 shards, 150 documents, 5.0/s, 30s left"


SLOW = """
import sys, time
from pathlib import Path
from crawl2llm.chain import command_line

def body(args, settings, manifest):
    args.manifest.with_suffix(".pid").write_text(str(__import__("os").getpid()))
    time.sleep(1000)
    return []

sys.exit(command_line.run_step(command_line.step_parser("language.score", "", ""), body))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_shards_end_with_their_task(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py"), "--config", making.config(STEP), "--also", "00001", "--at-once", "2",
         "--manifest", str(tmp_path / "00000.manifest.json")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 900
        while len(files := list(tmp_path.glob("*.pid"))) < 2 or not all(path.read_text() for path in files):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        children = {int(path.read_text()): process_start_ticks(int(path.read_text())) for path in files}
        assert all(children.values()) and process.pid not in children
    finally:
        process.send_signal(number)
        process.wait()
    deadline = time.monotonic() + 120
    while any(process_start_ticks(child) == begun and begun for child, begun in children.items()):
        assert time.monotonic() < deadline, "a shard outlives its task"
        time.sleep(0.02)
