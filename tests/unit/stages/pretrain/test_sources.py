"""Held-out bits per byte by source: in a training's rows and manifest, and by the evaluation's own measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from crawl2llm.stages.evaluate.heldout_loss import measure_heldout as evaluated
from crawl2llm.training import heldout
from crawl2llm.training.measures import bits_per_byte
from tests.unit.stages.pretrain.runs import finish, rows


def test_the_whole_is_the_sum_of_its_parts(sourced: list[Path], shards: list[Path]) -> None:
    documents, _ = heldout.choose_documents(sourced, 1500, 0)
    assert heldout.source_names(documents) == ["books", "web"] and [d.id for d in documents] == [
        d.id for d in heldout.choose_documents(shards, 1500, 0)[0]
    ]
    found = heldout.summarize_scores(documents, [300.0, 500.0])
    whole, parts = found, found["by_source"]
    assert (
        whole["bits_per_byte"] == bits_per_byte(800, whole["bytes"])
        and parts["web"]["loss"] == 500 / parts["web"]["tokens"]
    )
    for key in ("tokens", "bytes", "documents"):
        assert whole[key] == parts["books"][key] + parts["web"][key] == heldout.count_sizes(documents)[key]
    empty = heldout.Document(0.0, "x", Path(), 0, 1, 0, "empty")
    assert (
        heldout.summarize_scores([empty, *documents], [300.0, 2.0, 500.0])["by_source"]["empty"]["bits_per_byte"]
        is None
    )


@pytest.mark.slow
def test_a_training_and_an_evaluation_agree(start: Any, tmp_path: Path, sourced: list[Path]) -> None:
    finish(start(tmp_path, 2, {"engine": "torch"}, tokens=sourced))
    rows_ = [row for row in rows(tmp_path / "out/losses.jsonl") if "bits_per_byte" in row]
    assert [list(row["bits_per_byte_by_source"]) for row in rows_] == [["books", "web"]] * 3
    last, summary = rows_[-1], json.loads((tmp_path / "out/manifest.json").read_text())["summary"]
    parts = summary["validation_by_source"]
    assert sum(part["bits_per_byte"] * part["bytes"] for part in parts.values()) == pytest.approx(
        last["bits_per_byte"] * summary["validation_bytes"], rel=1e-9
    )
    documents, _ = heldout.choose_documents(sourced, 1500, 0)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out/model")
    for batch_size in (1, 5):
        found, lines = evaluated(model, 0, documents, 32, heldout.CARRY, batch_size)
        assert [line["document"] for line in lines] == [document.id for document in documents]
        assert found["bits_per_byte"] == pytest.approx(last["bits_per_byte"], abs=2e-6)
        for name, part in parts.items():
            assert found["by_source"][name]["bits_per_byte"] == pytest.approx(part["bits_per_byte"], abs=2e-6)
            assert found["by_source"][name]["bytes"] == part["bytes"]
    assert parts["books"]["bits_per_byte"] != parts["web"]["bits_per_byte"]
    shown = next(tmp_path.glob("checkpoints/*/metrics.prom")).read_text()
    assert (
        f'_by_source{{run="{next(tmp_path.glob("checkpoints/*/metrics.prom")).parent.name}",source="books"}} ' in shown
    )
