"""benchmarks.edits: every edit leaves a config that is valid, and what a run prints is read as it is meant."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks import edits
from crawl2llm.chain import config as configuration


@pytest.mark.parametrize("name", edits.NO_DOCUMENT | edits.TRAINING)
def test_an_edit_is_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "checkpoints", ".snakemake", "logs"):
        (tmp_path / folder).mkdir()
    for layout in ("preference", "labels", "prompts"):
        edits.rows(layout, tmp_path / f"data/{layout}.jsonl")
    run = edits.Run(tmp_path, edits.config())
    run.write()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    facts = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    (edits.NO_DOCUMENT | edits.TRAINING)[name](run)
    configuration.validate(run.tree)
    assert (
        run.tree != edits.config()
        or {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} != before
        or {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} != facts
    )
    configuration.validate(yaml.safe_load((tmp_path / "run.yaml").read_text()))


def test_what_a_run_prints() -> None:
    printed = (
        "04:04:13 paragraphs.score       1 task      1s  133 of 133 kept\n"
        "04:04:14 corpus.write           3 tasks     1s  as before\n"
        "04:05:51 evaluate.model         3 tasks    47s  2 as before\n"
        "43 of 43 tasks done in 5s\n"
    )
    assert edits.tasks(printed) == ({"paragraphs.score": 1, "evaluate.model": 1}, 5)
    assert len(edits.NO_DOCUMENT) >= 30
