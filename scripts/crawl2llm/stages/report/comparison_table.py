"""What evaluate.compare found, as the report's table: for two models the difference on each measure, its interval, and the verdict."""

from __future__ import annotations

import math
from typing import Any

from crawl2llm.chain.model_registry import BASE
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report import generation_table
from crawl2llm.stages.report.models import title
from crawl2llm.stages.report.page import percent, signed
from crawl2llm.stages.report.public import is_public
from crawl2llm.stages.report.public import name as public_name
from crawl2llm.stages.report.tasks import NAMES

MEASURES = {
    "heldout_text": "Bits per byte",
    **NAMES,
    "heldout_questions": "Held-out questions",
    **generation_table.NAMES,
}
WORDS = {"better": "better", "worse": "worse", "unclear": "not to be told apart"}
SHOWN = 10  # comparisons, all pairs of five models, that the page shows whatever they are of
CLASSES = {"better": "gained", "worse": "lost", "unclear": "muted"}


def change(value: float, measure: str) -> str:
    """`+0.136` bits per byte, or as many digits as show that it is not zero: `−0.0004`; `−1.3` of percent."""
    if measure != "heldout_text":
        return signed(100 * value, 1)
    return signed(value, min(6, max(3, -math.floor(math.log10(abs(value))))) if value else 3)


def measure(name: str) -> str:
    """What a measure is called for a reader."""
    return MEASURES.get(name) or public_name(name)


def cell(one: dict[str, Any] | None) -> dict[str, str]:
    """`change`, `interval`, `verdict` and its CSS class."""
    if not one:
        return dict.fromkeys(("change", "interval", "verdict", "kind"), "")
    name = one["measure"]
    interval = f"{change(one['low'], name)} to {change(one['high'], name)}" if "low" in one else "too few documents"
    return {
        "change": change(one["difference"], name),
        "interval": interval,
        "verdict": WORDS[one["verdict"]],
        "kind": CLASSES[one["verdict"]],
    }


def alike(pairs: list[dict[str, Any]]) -> set[str]:
    """The public tasks, of CORE's too, on which no two models are told apart: so many columns that say nothing would hide the others."""
    told = {one["measure"] for pair in pairs for one in pair["measures"] if one["verdict"] != "unclear"}
    return {one["measure"] for pair in pairs for one in pair["measures"] if is_public(one["measure"])} - told


def asks_something(pair: dict[str, Any], parents: dict[str, str | None]) -> bool:
    """Whether a comparison says what a training did: it is of a model and the one that it is made from, or the base model."""
    first, second = pair["first"], pair["second"]
    return BASE in (first, second) or parents.get(first) == second or parents.get(second) == first


def table(run: Run, parents: dict[str, str | None] | None = None) -> dict[str, Any]:
    """`heads` of the measures, `rows` of pairs, none with fewer than two models, `more` rows that are folded, and `about`.

    parents: model → what it is made from. Of more than SHOWN pairs those are folded that answer no question by themselves.
    """
    pairs = run.fact("evaluate.compare", "pairs") or []
    hidden = alike(pairs)
    measured = {one["measure"] for pair in pairs for one in pair["measures"]} - hidden
    names = [*(name for name in MEASURES if name in measured), *sorted(measured - MEASURES.keys())]
    rows: list[dict[str, Any]] = []
    more: list[dict[str, Any]] = []
    for pair in pairs:
        by_name = {one["measure"]: one for one in pair["measures"]}
        shown = len(pairs) <= SHOWN or asks_something(pair, parents or {})
        (rows if shown else more).append(
            {
                "second": title(pair["second"]),
                "first": title(pair["first"]),
                "cells": [cell(by_name.get(name)) for name in names],
            }
        )
    if not rows:
        return {"rows": [], "more": []}
    sure = run.fact("evaluate.compare", "confidence")
    return {
        "heads": [measure(name) for name in names],
        "rows": rows,
        "more": more,
        "about": (
            "The first model less the second, on the items and documents that both answered: bits per byte, where less is better, and "
            f"accuracy (ROUGE-L, chrF) in percent. Below it its {percent(sure, 0)} interval by bootstrap over documents. Where that "
            "holds 0, these items cannot tell the two apart. Of so many comparisons, some "
            f"{percent(1 - sure, 0)} are outside of it by chance alone."
            + (
                f" Without a column, for no two models are told apart: {', '.join(map(public_name, sorted(hidden)))}."
                if hidden
                else ""
            )
        ),
    }
