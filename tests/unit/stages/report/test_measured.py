"""Public tasks, what models write, held-out text by source, and the learning curve on the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.formats.run_records import Run
from crawl2llm.stages.evaluate import scores
from crawl2llm.stages.evaluate.scores import Outcome
from crawl2llm.stages.report import comparison_table, curve, generation_table, public, render, slices
from tests.unit.stages.report.conftest import counts, manifests_of, save


def outcomes(right: int, chance: float) -> list[Outcome]:
    return [Outcome(str(at), at < right, chance, {}, cut=at < 3) for at in range(20)]


@pytest.fixture
def measured(run_folder: Path) -> Path:
    """A run with every measure that a config may ask for."""
    for model, right in (("untrained", 5), ("base", 9), ("sft", 10)):
        found = {task: scores.measure_task(task, outcomes(right, 0.25), 0)[0] for task in ("arc_easy", "core.copa")}
        of = {
            task: {**one, "from": "a.jsonl", "rows": 2376, "shots": 10 * (task != "arc_easy")}
            for task, one in found.items()
        }
        mean = scores.core_score(found, ["copa", "squad"], ["squad"])
        save(run_folder, "evaluate.public", model, counts=counts(40), summary={"tasks": of, "core": mean})
    for model, rouge in (("base", 0.04), ("sft", 0.14)):
        answers = {
            "items": 60,
            "documents": 22,
            "rougeL": rouge,
            "rougeL_stderr": 0.024,
            "words": 5.65,
            "reference_words": 9.25,
        }
        summary = {"answers": {"all": answers}, "samples": {"items": 20, "distinct_2": 0.95}, "notes": []}
        save(run_folder, "evaluate.generate", model, counts=counts(60), summary=summary)
        judged = {
            "judge": "big",
            "score": 10 * rouge,
            "stderr": 0.1,
            "scale": [1.0, 10.0],
            "items": 60,
            "without_score": 0,
        }
        save(run_folder, "evaluate.judge", model, counts=counts(60), summary=judged)
    parts = [
        {
            "by": "language",
            "name": name,
            "documents": 12,
            "bytes": 900,
            "tokens": 300,
            "bits_per_byte": bits,
            "perplexity": 20.0,
            "stderr": 0.1,
        }
        for name, bits in (("en", 1.5), ("de", 2.5))
    ]
    one = {
        "measure": "core.copa",
        "first": 0.45,
        "second": 0.5,
        "difference": 0.05,
        "verdict": "unclear",
        "documents": 20,
    }
    two = {**one, "measure": "answers.rougeL", "difference": 0.1, "low": 0.05, "high": 0.15, "verdict": "better"}
    pairs = [{"first": "base", "second": "sft", "measures": [one, two]}]
    summary = {"pairs": pairs, "slices": {"base": parts, "sft": parts[:1]}, "confidence": 0.95}
    save(run_folder, "evaluate.compare", counts=counts(2), summary=summary)
    tasks = {"next_word": {"accuracy": 0.5, "centered": 0.333, "centered_stderr": 0.04}}
    points = [{"step": step, "tokens": 1000 * step, "tasks": tasks} for step in (30, 60)]
    save(run_folder, "evaluate.curve", counts=counts(2), summary={"points": points})
    return run_folder


def test_public_tasks_stand_beside_chance_and_an_untrained_model(measured: Path) -> None:
    found = public.table(Run.read(manifests_of(measured)), ["base", "sft", "absent"])
    assert found["heads"] == ["untrained", "Base model", "sft"]
    easy, copa, mean = found["rows"]
    assert (easy["name"], copa["name"]) == ("ARC easy", "CORE: copa") and easy[
        "note"
    ] == "20 of 2,376 items; 3 cut to the context"
    assert copa["note"].startswith("20 of 2,376 items, 10 examples")
    assert (
        easy["cells"][1][0].replace("\N{NO-BREAK SPACE}", " ").startswith("45.0 % ±") and easy["cells"][1][1] == "+0.27"
    )
    assert mean["cells"][1][1] == "1 of 2 tasks" and mean["note"] == "without squad"


def test_what_models_write(measured: Path) -> None:
    found = generation_table.table(Run.read(manifests_of(measured)), ["base", "sft"])
    rows = {(row["kind"], row["name"]): row for row in found["rows"]}
    assert rows["answers", "Words"]["reference"] == "9.25" and len(rows) == 4
    assert rows["1 to 10, by big", "Judge's score"]["cells"][1].startswith("1.4 ±")
    assert (
        "±" in rows["answers", "ROUGE-L"]["cells"][0] and rows["samples", "Distinct pairs of words"]["reference"] == "–"
    )


def test_parts_of_the_held_out_text(measured: Path) -> None:
    found = slices.table(Run.read(manifests_of(measured)))
    assert [row["name"] for row in found["rows"]] == ["en", "de"] and found["rows"][1]["cells"][1] == ("–", "")


def test_the_curve_joins_validations_and_checkpoints(measured: Path) -> None:
    run = Run.read(manifests_of(measured))
    rows = curve.table(run)["rows"]
    assert {step for step, _, _ in rows} >= {"30", "60"} and "+0.33 ± 0.04" in {cells[-1] for _, _, cells in rows}
    assert any(cells[0] != "–" for _, _, cells in rows), "bits per byte of the training's validations"
    assert "<svg" in (curve.figure(run) or "")


def test_the_page_has_them_all(measured: Path) -> None:
    out = measured / "report/render/manifest.json"
    given: dict[str, Any] = {
        "step": "report.render",
        "config": {"samples": 1, "sample_characters": 200, "seed": 0, "models": None},
    }
    given["config"].pop("models")
    words = ["--config", json.dumps(given), "--manifests", *map(str, manifests_of(measured)), "--manifest", str(out)]
    assert render.main(words) == 0
    text = (out.parent / "report.html").read_text(encoding="utf-8")
    for heading in (
        "Public tasks",
        "What the models write",
        "By source and language",
        "Learning curve of the base model",
    ):
        assert f"<h3>{heading}</h3>" in text
    found = comparison_table.table(Run.read(manifests_of(measured)))
    assert found["heads"] == ["Answers: ROUGE-L"] and found["about"].endswith(
        "no two models differ significantly: CORE: copa."
    )
