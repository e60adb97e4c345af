"""What evaluate.compare found, as the report's table: for two models the difference on each measure, its interval, and the verdict."""

from __future__ import annotations

import math
from typing import Any

from crawl2llm.chain.model_registry import BASE
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import generation_table
from crawl2llm.stages.report.models import model_title
from crawl2llm.stages.report.page import format_percent, format_signed
from crawl2llm.stages.report.public import ANSWER_BITS, is_public
from crawl2llm.stages.report.public import task_title as public_name
from crawl2llm.stages.report.tasks import NAMES

MEASURES = {
    "heldout_text": "Bits per byte",
    **NAMES,
    "heldout_questions": "Held-out questions",
    **generation_table.NAMES,
}
WORDS = {"better": "better", "worse": "worse", "unclear": "no significant difference"}
PAIRS_SHOWN = 10  # comparisons, all pairs of five models, that the page shows whatever they are of
CLASSES = {"better": "gained", "worse": "lost", "unclear": "muted"}


def difference_text(value: float, measure: str) -> str:
    """`+0.136` bits per byte, or as many digits as show that it is not zero: `−0.0004`; `−1.3` of percent."""
    if measure != "heldout_text" and not measure.endswith(ANSWER_BITS):
        return format_signed(100 * value, 1)
    return format_signed(value, min(6, max(3, -math.floor(math.log10(abs(value))))) if value else 3)


def measure_name(name: str) -> str:
    """What a measure is called for a reader."""
    return MEASURES.get(name) or public_name(name)


def comparison_cell(comparison: dict[str, Any] | None) -> dict[str, str]:
    """`change`, `interval`, `verdict` and its CSS class."""
    if not comparison:
        return dict.fromkeys(("change", "interval", "verdict", "kind"), "")
    name = comparison["measure"]
    interval = (
        f"{difference_text(comparison['low'], name)} to {difference_text(comparison['high'], name)}"
        if "low" in comparison
        else "too few documents"
    )
    return {
        "change": difference_text(comparison["difference"], name),
        "interval": interval,
        "verdict": WORDS[comparison["verdict"]],
        "kind": CLASSES[comparison["verdict"]],
    }


def undecided_tasks(pairs: list[dict[str, Any]]) -> set[str]:
    """The public tasks, of CORE's too, on which no two models are told apart: so many columns that say nothing would hide the others."""
    decided = {row["measure"] for pair in pairs for row in pair["measures"] if row["verdict"] != "unclear"}
    return {
        measure["measure"] for pair in pairs for measure in pair["measures"] if is_public(measure["measure"])
    } - decided


def shows_training_effect(pair: dict[str, Any], parents: dict[str, str | None]) -> bool:
    """Whether a comparison says what a training did: it is of a model and the one that it is made from, or the base model."""
    first, second = pair["first"], pair["second"]
    return BASE in (first, second) or parents.get(first) == second or parents.get(second) == first


def table(run: Run, parents: dict[str, str | None] | None = None) -> dict[str, Any]:
    """`heads` of the measures, `rows` of pairs, none with fewer than two models, `more` rows that are folded, and `about`.

    parents: model → what it is made from. Of more than PAIRS_SHOWN pairs those are folded that answer no question by themselves.
    """
    pairs = run.fact("evaluate.compare", "pairs") or []
    hidden = undecided_tasks(pairs)
    measured = {measure_row["measure"] for pair in pairs for measure_row in pair["measures"]} - hidden
    names = [*(name for name in MEASURES if name in measured), *sorted(measured - MEASURES.keys())]
    rows: list[dict[str, Any]] = []
    folded: list[dict[str, Any]] = []
    for pair in pairs:
        by_name = {measure["measure"]: measure for measure in pair["measures"]}
        is_shown = len(pairs) <= PAIRS_SHOWN or shows_training_effect(pair, parents or {})
        (rows if is_shown else folded).append(
            {
                "second": model_title(pair["second"]),
                "first": model_title(pair["first"]),
                "cells": [comparison_cell(by_name.get(name)) for name in names],
            }
        )
    if not rows:
        return {"rows": [], "more": []}
    confidence = run.fact("evaluate.compare", "confidence")
    return {
        "heads": [measure_name(name) for name in names],
        "rows": rows,
        "more": folded,
        "about": (
            "The first model minus the second, on the items and documents that both answered: bits per byte (of held-out text, of "
            "right answers), of which less is better, and accuracy (ROUGE-L, chrF) in percent. Below it "
            f"its {format_percent(confidence, 0)} interval by bootstrap over documents. "
            f"If the interval contains 0, there is no significant difference. Some {format_percent(1 - confidence, 0)} "
            "of so many comparisons lie outside it by chance alone."
            + (
                " Without a column, because no two models differ significantly: "
                f"{', '.join(map(public_name, sorted(hidden)))}."
                if hidden
                else ""
            )
        ),
    }
