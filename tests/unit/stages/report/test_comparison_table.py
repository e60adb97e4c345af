"""What the report and the summary say of a difference between two models."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report.comparison_table import difference_text, measure_name, table


@pytest.mark.parametrize(
    ("value", "measure", "words"),
    [
        (0.1364, "heldout_text", "+0.136"),
        (-0.00042, "heldout_text", "−0.0004"),
        (0.00096, "heldout_text", "+0.0010"),
        (-1e-9, "heldout_text", "−0.000000"),
        (0.0, "heldout_text", "+0.000"),
        (-0.013, "continuation", "−1.3"),
    ],
)
def test_a_small_difference_keeps_a_digit(value: float, measure: str, words: str) -> None:
    assert difference_text(value, measure) == words


@pytest.mark.parametrize(
    ("name", "words"),
    [("core.jeopardy", "CORE: jeopardy"), ("arc_easy", "ARC easy"), ("tweets.tsv.zst", "tweets.tsv.zst")],
)
def test_what_a_measure_is_called(name: str, words: str) -> None:
    """A file's classification is called as the file."""
    assert measure_name(name) == words


def compared(tmp_path: Path, models: list[str]) -> Run:
    pairs = [{"first": first, "second": second, "measures": []} for first, second in combinations(["base", *models], 2)]
    path = tmp_path / "evaluate" / "compare" / "manifest.json"
    path.parent.mkdir(parents=True)
    Manifest("evaluate.compare", "0" * 16, summary={"pairs": pairs, "confidence": 0.95}).write(path, [])
    return Run.read([path])


def test_of_many_models_those_comparisons_are_shown_that_say_what_a_training_did(tmp_path: Path) -> None:
    models = [f"m{number:02d}" for number in range(15)]
    parents = {"base": None, **dict.fromkeys(models, "base"), "m03": "m02"}
    found = table(compared(tmp_path, models), parents)
    assert [(row["first"], row["second"]) for row in found["rows"]] == [
        *(("Base model", name) for name in models), ("m02", "m03"),
    ]  # fmt: skip
    assert len(found["rows"]) + len(found["more"]) == 120


def test_of_few_models_all_comparisons_are_shown(tmp_path: Path) -> None:
    found = table(compared(tmp_path, ["a", "b", "c", "d"]), {})
    assert len(found["rows"]) == 10 and found["more"] == []
