"""Placement by variant: whose holds for what variants share, and who is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain.config import validate
from crawl2llm.chain.project import Project
from crawl2llm.workflow import variant_placement

SOURCE = {"name": "books", "kind": "text", "paths": ["a.txt"]}


def project(folder: Path, monkeypatch: pytest.MonkeyPatch, variants: dict[str, Any]) -> Project:
    monkeypatch.chdir(folder)
    (folder / "a.txt").write_text("some text")
    return Project(validate({"ingest": {"extract": {"shards": 1, "sources": [SOURCE]}}, "variants": variants}))


def test_no_fingerprint_and_no_folder_depends_on_placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = {"processes": 8, "nodes": 2, "micro_batch": 1, "checkpoint_every": 7}
    found = project(tmp_path, monkeypatch, {"large": {"pretrain": {"train": train}}})
    assert found.fingerprint("large", "pretrain.train") == found.fingerprint("main", "pretrain.train")
    assert found.step_folder("large", "pretrain.train") == "results/main/pretrain/train"


def test_of_what_is_shared_the_owner_s_placement_holds_and_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"seed": 5, "micro_batch": 2}  # trains itself: its own placement holds
    twice = {"seed": 5, "micro_batch": 1}  # shares that training, and asks for another placement of it
    variants = {name: {"pretrain": {"train": train}} for name, train in (("own", own), ("twice", twice))}
    variants |= {f"log-{number}": {"pretrain": {"train": {"log_every": number}}} for number in (2, 3, 4, 5, 6)}
    found = project(tmp_path, monkeypatch, variants)
    assert list(variant_placement.difference_lines(found)) == [
        "pretrain.train.micro_batch is 2, as own has it, which makes the result: twice has 1",
        "pretrain.train.log_every is 10, as main has it, which makes the result: log-2 has 2, log-3 has 3, log-4 has 4, 2 more have others",
    ]


def test_a_model_s_own_placement_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = project(tmp_path, monkeypatch, {"wide": {"models": {"sft": {"processes": 4}}}})
    (line,) = variant_placement.difference_lines(found)
    assert line == "finetune.train.processes is 1, as main has it, which makes the result: wide has 4"
