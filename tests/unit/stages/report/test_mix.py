"""What the page shows of a mix: what was asked for, and what the training read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import mix
from crawl2llm.stages.report.models import Model
from crawl2llm.training import mix_reader
from tests.unit.stages.pretrain.test_mix import corpus, draw

BASE = Model("base", None, "pretrain.train")


def run_of(folder: Path, *phases: dict[str, Any], by: str = "source") -> Run:
    """A run of a mix that pretrain.mix drew, and of a training that read its 60 steps and wrote what it read."""
    _, found, plan = draw(folder, corpus(folder), by, *phases, shortage="share")
    place = folder / "pretrain/train"
    place.mkdir()
    rows = [
        {"step": step, "loss": 3.0, **found.loss_row(found.windows_at(*plan.window_span(step)))}
        for step in range(1, 61)
    ]
    (place / "losses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = Manifest("pretrain.train", "0" * 16, summary=mix_reader.manifest_summary(found, rows, 60))
    made.write(place / "manifest.json", [place / "losses.jsonl"])
    return Run.read([place / "manifest.json", folder / "pretrain/mix/manifest.json"])


def test_what_each_group_gave_is_what_it_was_to_give(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"until": 0.5, "shares": {"books": 0.75}}, {"shares": {"books": 0.25}})
    table = mix.table(run, BASE)
    assert table and table["kind"] == "Source" and table["phases"] == ["1 to 30", "31 to 60"] and not table["more"]
    assert [(row["name"], row["shares"], row["share"]) for row in table["rows"]] == [
        ("books", ["75.00\N{NO-BREAK SPACE}%", "25.00\N{NO-BREAK SPACE}%"], "50.00\N{NO-BREAK SPACE}%"),
        ("web", ["25.00\N{NO-BREAK SPACE}%", "75.00\N{NO-BREAK SPACE}%"], "50.00\N{NO-BREAK SPACE}%"),
    ]
    assert [row["read"] for row in table["rows"]] == ["960", "960"]  # of 60 steps of 32 tokens
    figure = mix.figures(run, BASE)["mix"]
    assert figure and "books: 75 to 25; web: 25 to 75" in figure


def test_groups_at_their_cap_are_said(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"shares": {"de": 0.9}}, by="language")
    table = mix.table(run, BASE)
    assert table and table["kind"] == "Language"
    held = {row["name"]: row["epochs"] for row in table["rows"] if row["held"]}
    assert held == {"de": "4"}


def test_a_run_without_a_mix_has_none(tmp_path: Path) -> None:
    place = tmp_path / "pretrain/train"
    place.mkdir(parents=True)
    (place / "losses.jsonl").write_text('{"step": 1, "loss": 3.0}\n')
    Manifest("pretrain.train", "0" * 16).write(place / "manifest.json", [place / "losses.jsonl"])
    run = Run.read([place / "manifest.json"])
    assert mix.table(run, BASE) is None and mix.figures(run, BASE) == {"mix": None}
    sft = Model("sft", "base", "finetune.train")
    assert mix.table(run, sft) is None and mix.figures(run, sft) == {"mix": None}
