"""What decontamination found, as the report's tables: how much of each evaluation set, examples, and accuracy with these items apart."""

from __future__ import annotations

from typing import Any

from crawl2llm.formats.run_records import Run, dig
from crawl2llm.stages.report.models import title
from crawl2llm.stages.report.page import NOTHING, integer, percent
from crawl2llm.stages.report.public import name

STEP = "evaluate.found"
SHOWN = 5  # examples


def share(of: dict[str, Any]) -> str:
    """`41.3 % ± 1.6 % of 250`: accuracy, its standard error, and of how many items."""
    if not of["items"]:
        return NOTHING
    wide = f" ± {percent(of['stderr'])}" if of["stderr"] is not None else ""
    return f"{percent(of['accuracy'])}{wide} of {integer(of['items'])}"


def found(run: Run) -> dict[str, Any]:
    """`sets` (a row each), `examples`, `tasks` (a row for each model and task with items found) and `about`; empty without the step."""
    summary = next((dict(made.summary) for made in run.of(STEP)), None)
    if not summary:
        return {"sets": [], "examples": [], "tasks": [], "about": ""}
    sets = []
    for of, one in summary["sets"].items():
        searched = one["items"] - one["short"]
        sets.append(
            {
                "name": name(of),
                "items": integer(searched),
                "found": integer(one["found"]),
                "share": percent(one["found"] / searched) if searched else NOTHING,
                "left": integer(one["left"]),
                "short": integer(one["short"]),
            }
        )
    examples = sorted(
        ({**example, "set": name(of)} for of, one in summary["sets"].items() for example in one["examples"]),
        key=lambda example: (-example["overlap"], example["set"], example["item"]),
    )
    tasks = [
        {
            "name": name(task),
            "model": title(model),
            "cells": [share(parts[part]) for part in ("all", "not_found", "removed", "left")],
        }
        for task, models in summary["tasks"].items()
        for model, parts in models.items()
        if parts["removed"]["items"] or parts["left"]["items"]
    ]
    documents = summary["documents"]
    return {
        "sets": sets,
        "examples": [
            {
                "set": one["set"],
                "item": one["item"],
                "overlap": percent(one["overlap"]),
                "documents": integer(one["documents"]),
                "url": next(iter(one["urls"]), ""),
            }
            for one in examples[:SHOWN]
        ],
        "tasks": tasks,
        "about": (
            f"Searched for in the text that would have been trained on, by {dig(summary, 'method')} of {dig(summary, 'words')} words; "
            "found: "
            f"an overlap above {dig(summary, 'overlap_max')}. Documents: {integer(documents.get('dropped', 0))} dropped, "
            f"{integer(documents.get('cut', 0))} cut, {integer(documents.get('left', 0))} left. No model has seen an item whose documents "
            "were dropped or cut; only those that are left are contaminated."
        ),
    }
