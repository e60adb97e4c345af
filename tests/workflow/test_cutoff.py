"""A run after an edit that changes nothing below it starts next to nothing, and one that changes something is as a run from nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawl2llm.core import record
from tests.workflow.conftest import TINY, differences, run, snapshot

# What shows settings, and so is made again.
SHARDS = ("00000", "00001")
PAGES = {"report.whatif", "report.inspect", "report.render"}


def edited(folder: Path, path: str, value: Any) -> Path:
    """The config of the complete run with another value of a key."""
    tree = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    *sections, key = path.split(".")
    inner = tree
    for name in sections:
        inner = inner.setdefault(name, {})
    inner[key] = value
    target = folder / "mine.yaml"
    target.write_text(yaml.safe_dump(tree, sort_keys=False))
    return target


def started(said: str) -> set[str]:
    """The steps of which a task was started, as a run says it."""
    lines = re.findall(r"^\d\d:\d\d:\d\d (\w+\.\w+) +\d+ tasks? +\S+(.*)$", said, re.MULTILINE)
    assert lines, said
    return {step for step, rest in lines if not re.search(r"(?<!\d) as before", rest)}


def data(folder: Path) -> dict[str, bytes]:
    """What steps wrote, except manifests and records, and the pages that show settings."""
    marks = ("manifest", "run.json", "report/")
    return {name: body for name, body in snapshot(folder).items() if not any(mark in name for mark in marks)}


def test_an_edit_that_changes_no_document(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    folder = copy_of()
    config, before = edited(tmp_path, "heuristics.select.gopher_quality.words_max", 99999), data(folder)
    weights = folder / "results/main/pretrain/train/model/model.safetensors"
    inode, log = weights.stat().st_ino, (folder / "logs/main/pretrain/train.log").read_bytes()
    shutil.rmtree(folder / "checkpoints")  # to free the disk; nothing of this needs them
    said = run(folder, config=config)
    assert started(said) == {"heuristics.select", *PAGES}, said
    assert "43 of 43 tasks done" in said and data(folder) == before
    assert weights.stat().st_ino == inode and (folder / "logs/main/pretrain/train.log").read_bytes() == log
    held = record.read(folder / "results/main/pretrain/train/manifest.json")
    assert held["renewed"] and held["fingerprint"]["upstream"]["tokenize.encode"]

    # A run that ended below the edited step, then a damage that a size tells: that task is started, and what reads it is not.
    config = edited(tmp_path, "heuristics.select.gopher_quality.words_max", 99998)
    assert started(run(folder, "--until", "lines_select", config=config)) == {"heuristics.select"}
    (folder / "results/main/corpus/write/train/00000.parquet").write_bytes(b"short")
    said = run(folder, "--until", "tokenize_train", config=config)
    assert started(said) == {"corpus.write"} and data(folder) == before, said


def test_an_edited_threshold_that_moves_no_document(copy_of: Callable[[], Path], tmp_path: Path) -> None:
    """The threshold is in the verdicts of the stage, and nothing below reads it there."""
    folder = copy_of()
    config, before = edited(tmp_path, "language.select.threshold", 0.39), data(folder)
    said = run(folder, config=config)
    assert started(said) == {"language.select", *PAGES}, said
    mine = data(folder)
    assert set(differences(mine, before)) == {f"results/main/language/select/{shard}.parquet" for shard in SHARDS}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("quality.select.keep_fraction", 0.8),
        ("heuristics.select.c4.sentences_min", 4),
        ("tokenize.train.train_bytes", 100000),
    ],
)
def test_an_edit_that_changes_documents(copy_of: Callable[[], Path], tmp_path: Path, path: str, value: Any) -> None:
    folder, config = copy_of(), edited(tmp_path, path, value)
    shutil.rmtree(folder / "checkpoints")
    assert "pretrain.train" in started(run(folder, config=config))
    (tmp_path / "nothing").mkdir()
    run(tmp_path / "nothing", config=config)
    assert differences(data(folder), data(tmp_path / "nothing")) == []
