"""The tasks on the report: what each model reaches beside n-grams, an untrained model and guessing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.root import ROOT
from crawl2llm.formats.public_tasks.measures import measure_task
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import comparison_table, funnel, render, tables, tasks, training_gains
from crawl2llm.stages.report.models import models_of_run
from tests.unit.stages.report.conftest import counts, manifests_of, save

RIGHT = {"unigram": 10, "bigram": 18, "untrained": 9, "base": 22, "sft": 20}  # of 40 items with four choices


def found(model: str, task: str) -> dict[str, Any]:
    """The numbers of a model that has RIGHT of 40 items right, as evaluate.items and evaluate.model write them."""
    items = [
        {"id": str(at), "document": f"d{at % 8}", "choices": ["a", "b", "c", "d"], "gold": at % 4} for at in range(40)
    ]
    nats = []
    for at, item in enumerate(items):
        chosen = (item["gold"] + (at >= RIGHT[model])) % 4
        nats.append([0.0 if choice == chosen else -1.0 for choice in range(4)])
    return measure_task(task, items, nats, 0)[0]


@pytest.fixture
def with_tasks(run_folder: Path) -> Path:
    """A run that has asked two tasks."""
    asked = ("next_word", "continuation")
    baselines = {task: {name: found(name, task) for name in ("unigram", "bigram")} for task in asked}
    bits = {"unigram": 3.4, "bigram": 2.4, "xz": 1.944, "zstd": 1.92}
    summary = {
        "tasks": {task: {"items": 40, "documents": 8, "baselines": of} for task, of in baselines.items()},
        "heldout_text": {"bits_per_byte": bits},
        "notes": ["Fewer items than evaluate.items.per_task = 500: next_word 40."],
    }
    save(run_folder, "evaluate.items", counts=counts(8), summary=summary)
    folder = run_folder / "evaluate/model"
    (folder / "untrained.evaluation.json").write_text(
        json.dumps({"heldout_text": {"bits_per_byte": 4.2}, "questions": None, "notes": []})
    )
    for model in ("base", "sft", "untrained"):
        path = folder / f"{model}.evaluation.json"
        path.write_text(
            json.dumps(json.loads(path.read_text()) | {"items": {task: found(model, task) for task in asked}})
        )
        save(run_folder, "evaluate.model", model, sorted({path, *folder.glob(f"{model}.samples.jsonl")}))
    return run_folder


def counts_of(folder: Path) -> dict[str, Any]:
    run = Run.read(manifests_of(folder))
    return funnel.run_counts(run, models_of_run(run))


def test_table(with_tasks: Path) -> None:
    made = tasks.result_tables(counts_of(with_tasks))
    assert made["heads"] == ["unigram", "bigram", "untrained", "Base model", "sft"]
    assert [row["name"] for row in made["rows"]] == ["Next word", "Continuation"]
    row = made["rows"][0]
    assert row["chance"].replace("\N{NO-BREAK SPACE}", " ") == "25.0 %" and row["note"] == "40 items of 8 documents"
    assert [cell[1] for cell in row["cells"]] == ["+0.00", "+0.27", "−0.03", "+0.40", "+0.33"]
    assert all(re.fullmatch(r"\d\d\.\d.% ± \d+\.\d.%", cell[0]) for cell in row["cells"])
    assert made["bits"][:4] == [("xz", "1.944"), ("zstd", "1.92"), ("unigram", "3.4"), ("bigram", "2.4")]
    assert made["bits"][4:] == [("untrained", "4.2"), ("Base model", "1.91"), ("sft", "1.91")]


def test_tile_and_lines(with_tasks: Path) -> None:
    known = counts_of(with_tasks)
    shown = {tile["name"]: tile for tile in tables.overview_tiles(known, 1.0)}
    assert not any(name.startswith("Accuracy") for name in shown)
    assert shown["Next word: right answers"]["value"].startswith("55.0")
    note = shown["Next word: right answers"]["note"].replace("\N{NO-BREAK SPACE}", " ")
    assert note == "base model; chance 25.0 %; bigram 45.0 %; untrained 22.5 %; 40 items"
    assert shown["Held-out text"]["note"].endswith("; untrained 4.2, bigram 2.4, xz 1.944")
    # The task of the tile is the one that is furthest from what needs no training, in standard errors.
    base = next(model for model in known["models"] if model["name"] == "base")
    base["evaluation"]["items"]["continuation"]["accuracy"] = 0.56
    assert training_gains.task_tiles(known)[0][0] == "Continuation: right answers"
    tuned = next(model for model in known["models"] if model["name"] == "sft")
    tuned["training"] = {**(tuned["training"] or {}), "heldout_loss_before": 4.293877, "heldout_loss_after": 3.798107}
    (answers,) = (tile for tile in tables.overview_tiles(known, 1.0) if tile["name"] == "Held-out answers, sft")
    assert (answers["value"], answers["unit"]) == ("4.29 → 3.80", "nats per token")
    said = {name: text.replace("\N{NO-BREAK SPACE}", " ") for name, text in tasks.task_lines(known)}
    assert said == {
        "tasks": "base model: next word 55.0 %, continuation 56.0 %; sft: next word 50.0 %, continuation 50.0 %",
        "beside": "bigram 45.0 %, 45.0 %; untrained 22.5 %, 22.5 %; chance 25.0 %, 25.0 %",
    }


def test_a_run_without_tasks(run_folder: Path) -> None:
    known = counts_of(run_folder)
    assert tasks.result_tables(known) == {"heads": ["Base model", "sft"], "rows": [], "bits": []}
    assert (
        tasks.task_lines(known) == []
        and training_gains.task_tiles(known) == []
        and tasks.task_lines({"models": []}) == []
    )
    assert any(tile["name"].startswith("Accuracy") for tile in tables.overview_tiles(known, 1.0))


def test_page(with_tasks: Path, tmp_path: Path) -> None:
    out = tmp_path / "results/main/report/render/manifest.json"
    given = [
        "--config",
        str(ROOT / "config.yaml"),
        "--manifests",
        *map(str, manifests_of(with_tasks)),
        "--manifest",
        str(out),
    ]
    assert render.main(given) == 0
    text = out.with_name("report.html").read_text(encoding="utf-8")
    assert (
        "Tasks from the held-out documents" in text
        and "Next word: right answers" in text
        and '<td class="n">1.944</td>' in text
    )
    assert "per_task = 500: next_word 40" in text


def test_models_compared(run_folder: Path) -> None:
    """The difference with its interval and the verdict in words; too few documents are said."""
    text = {
        "measure": "heldout_text",
        "first": 1.9,
        "second": 2.0,
        "difference": 0.1,
        "low": 0.05,
        "high": 0.15,
        "verdict": "worse",
    }
    sure = {
        "measure": "next_word",
        "first": 0.5,
        "second": 0.55,
        "difference": 0.05,
        "low": 0.01,
        "high": 0.09,
        "verdict": "better",
    }
    few = {"measure": "my_task", "first": 0.5, "second": 0.5, "difference": 0.0, "verdict": "unclear"}
    pairs = [
        {"first": "base", "second": "sft", "measures": [few, sure, text]},
        {"first": "base", "second": "b", "measures": [text]},
    ]
    save(
        run_folder, "evaluate.compare", counts=counts(2), summary={"pairs": pairs, "confidence": 0.95, "resamples": 100}
    )
    made = comparison_table.table(Run.read(manifests_of(run_folder)))
    assert made["heads"] == ["Bits per byte", "Next word", "my_task"]
    cells = [tuple(cell.values()) for cell in made["rows"][0]["cells"]]
    assert cells == [
        ("+0.100", "+0.050 to +0.150", "worse", "lost"),
        ("+5.0", "+1.0 to +9.0", "better", "gained"),
        ("+0.0", "too few documents", "no significant difference", "muted"),
    ]
    assert made["rows"][1]["cells"][1]["change"] == ""
    assert not comparison_table.table(
        Run.read([path for path in manifests_of(run_folder) if "compare" not in str(path)])
    )["rows"]
