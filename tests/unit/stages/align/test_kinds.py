"""Each kind of rows of align.pairs has files of its own, and its own most rows: an edit trains no model again that reads other kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.chain import early_cutoff
from crawl2llm.core.manifest import Manifest, consumed_inputs, record_inputs
from crawl2llm.stages.align import pairs
from crawl2llm.stages.align.batches import Preferences, rows_for
from crawl2llm.stages.align.comparisons import Comparisons
from crawl2llm.stages.align.online import Prompts
from crawl2llm.stages.align.pairs import read_rows
from crawl2llm.stages.align.settings import TrainSettings
from crawl2llm.training.model_loading import load_tokenizer
from tests.unit.stages.finetune import tiny

SETTINGS = {
    "max_length": 64, "max_new_tokens": 8, "batch_size": 4, "micro_batch": 2, "epochs": 1, "seed": 0, "generations": 2,
}  # fmt: skip
ANSWERS = {"chosen": "yes", "rejected": "no"}


def written(folder: Path, questions: Path, **rows: list[dict[str, Any]]) -> Path:
    """The manifest of align.pairs over a file of each layout, with room for fewer rows than there are."""
    files = []
    for layout, some in rows.items():
        file = folder.parent / f"{layout}.jsonl"  # the name of a file is in the ids of its rows
        file.write_text("".join(json.dumps(row) + "\n" for row in some))
        files.append({"path": str(file), "layout": layout, "heldout": 0.2})
    out = folder / "manifest.json"
    config = tiny.config("align.pairs", files=files, max_train=20, max_heldout=4)
    assert pairs.main(["--config", config, "--pairs", str(questions), "--manifest", str(out)]) == 0
    return out


def reads(method: str, made: Path, folder: Path) -> Manifest:
    """A result whose `inputs` are what a training by this method reads of align.pairs."""
    tokenizer = load_tokenizer(folder)
    with record_inputs() as opened:
        if method == "grpo":
            Prompts(made, tokenizer, TrainSettings(**SETTINGS), 1)
            read_rows(made, "heldout")
        else:
            reader = Comparisons if method == "reward" else Preferences
            method = "dpo" if method == "reward" else method
            reader(made, tokenizer, TrainSettings(**SETTINGS), 1, method)
            rows_for(method, made, "heldout")
    return Manifest("align.train", "", inputs=consumed_inputs(opened))


@pytest.fixture
def kinds() -> dict[str, list[dict[str, Any]]]:
    return {
        "preference": [{"prompt": f"Preferred {n}?", **ANSWERS} for n in range(60)],
        "labels": [{"prompt": f"Labelled {n}?", "completion": f"{n}", "label": bool(n % 2)} for n in range(60)],
        "prompts": [{"prompt": f"Asked {n}?"} for n in range(60)],
    }


@pytest.mark.parametrize(
    ("edited", "trains"),
    [("prompts", {"grpo"}), ("labels", {"grpo", "kto"}), ("preference", {"grpo", "kto", "dpo", "reward"})],
)
def test_an_edit_of_a_kind_trains_what_reads_it(
    kinds: dict[str, Any], edited: str, trains: set[str], base_model: Path, questions: Path, tmp_path: Path
) -> None:
    before = written(tmp_path / "before", questions, **kinds)
    results = {name: reads(name, before, base_model.parent / "model") for name in ("dpo", "kto", "reward", "grpo")}
    more = [{**row, "prompt": f"{row['prompt'][:-1]} again?"} for row in kinds[edited]]
    after = written(tmp_path / "after", questions, **{**kinds, edited: kinds[edited][10:] + more})
    given = {"align.pairs": Manifest.read_unchecked(after)}
    assert {name for name, made in results.items() if not early_cutoff.consumes_the_same(made, given, {})} == trains
    same = {"align.pairs": Manifest.read_unchecked(before)}
    assert all(early_cutoff.consumes_the_same(made, same, {}) for made in results.values())


def test_the_most_rows_are_of_each_kind(kinds: dict[str, Any], questions: Path, tmp_path: Path) -> None:
    made = written(tmp_path / "made", questions, **kinds)
    found = Manifest.read(made)
    assert found.summary["kinds"]["train"] == dict.fromkeys(sorted(kinds), 20)
    assert found.summary["kinds"]["heldout"] == dict.fromkeys(sorted(kinds), 4)
    rows = read_rows(made, "heldout")[0]
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows) and len(rows) == 12
    assert {row["question"] for row in read_rows(made, "train", ("labels",))[0]} <= {
        row["prompt"] for row in kinds["labels"]
    }
