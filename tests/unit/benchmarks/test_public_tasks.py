"""benchmarks.public_tasks with a tiny model: both sides answer the same rows alike, and what differs is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import public_tasks
from tests.unit.stages.finetune import tiny

Row = dict[str, Any]


def compare_sides(**changes: Any) -> Row:
    """The comparison of an item that is scored and one that is written, of which the first differs by `changes`."""
    rows: list[Row] = [
        {"id": "a", "right": True, "log_likelihoods": [-1.0, -2.0]},
        {"id": "b", "right": False, "text": "4"},
    ]
    theirs = {row["id"]: dict(row) for row in rows}
    return public_tasks.compare_items([{**row, **(changes if row["id"] == "a" else {})} for row in rows], theirs)


def test_what_differs_is_counted() -> None:
    same = compare_sides()
    assert (same["items"], same["accuracy"], same["right_alike"]) == (2, 0.5, 2)
    assert (same["likelihoods_equal"], same["texts_equal"], same["largest_difference_nats"]) == (1, 1, 0.0)
    assert compare_sides(right=False)["right_alike"] == 1
    other = compare_sides(log_likelihoods=[-1.0, -2.002])
    assert other["likelihoods_equal"] == 0 and other["largest_difference_nats"] == pytest.approx(0.002)
    with pytest.raises(SystemExit, match="same rows"):
        compare_sides(id="c")


def test_a_file_that_is_there_keeps_what_is_not_asked_again(tmp_path: Path) -> None:
    out, asked = tmp_path / "out.json", {"precision": "fp32", "batch_size": 16}
    assert public_tasks.earlier_results(out, asked) == {}
    kept = {"tasks": {"piqa": {"items": 8}}, "published": {"card": {"piqa": 0.663}}}
    out.write_text(json.dumps({**asked, **kept, "processor": "another"}))
    assert public_tasks.earlier_results(out, asked) == kept
    with pytest.raises(SystemExit, match="has results with precision fp32, not bf16: give another --out"):
        public_tasks.earlier_results(out, {**asked, "precision": "bf16"})


@pytest.mark.slow
def test_both_sides_answer_alike(tmp_path: Path) -> None:
    model = tiny.write_model(tmp_path / "pretrain", tiny.pages()).parent / "model"
    copa = [
        {"premise": "The list is long.", "choice1": "It has names.", "choice2": "It returns.", "question": "cause", "label": 0},
        {"premise": "The module ends.", "choice1": "It is in.", "choice2": "The list has it.", "question": "effect", "label": 1},
    ]  # fmt: skip
    for name, rows in (("copa", copa),):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out.json"
    files = [str(tmp_path / f"{name}.jsonl") for name in ("copa",)]
    assert public_tasks.main([str(model), *files, "--tasks", "copa", "--out", str(out)]) == 0
    found = json.loads(out.read_text())["tasks"]["copa"]
    assert (found["items"], found["right_alike"], found["likelihoods_equal"]) == (2, 2, 2)
    assert all(found["cpu_seconds"][side][part] > 0 for side in ("ours", "lm_eval") for part in ("whole", "answers"))
