"""What decontamination found, as the report's tables: how much of each evaluation set, examples, and accuracy with these items apart."""

from __future__ import annotations

from typing import Any

from crawl2llm.formats.run_records import Run, nested_value
from crawl2llm.stages.report.models import model_title
from crawl2llm.stages.report.page import NOTHING, format_integer, format_percent
from crawl2llm.stages.report.public import task_title

STEP = "evaluate.found"
EXAMPLES_SHOWN = 5  # examples


def accuracy_text(counts: dict[str, Any]) -> str:
    """`41.3 % ± 1.6 % of 250`: accuracy, its standard error, and of how many items."""
    if not counts["items"]:
        return NOTHING
    error = f" ± {format_percent(counts['stderr'])}" if counts["stderr"] is not None else ""
    return f"{format_percent(counts['accuracy'])}{error} of {format_integer(counts['items'])}"


def contamination_tables(run: Run) -> dict[str, Any]:
    """`sets` (a row each), `examples`, `tasks` (a row for each model and task with items found) and `about`; empty without the step."""
    summary = next((dict(manifest.summary) for manifest in run.manifests_of(STEP)), None)
    if not summary:
        return {"sets": [], "examples": [], "tasks": [], "about": ""}
    sets = []
    for set_name, row in summary["sets"].items():
        searched = row["items"] - row["short"]
        sets.append(
            {
                "name": task_title(set_name),
                "items": format_integer(searched),
                "found": format_integer(row["found"]),
                "share": format_percent(row["found"] / searched) if searched else NOTHING,
                "left": format_integer(row["left"]),
                "short": format_integer(row["short"]),
            }
        )
    examples = sorted(
        (
            {**example, "set": task_title(of)}
            for of, set_summary in summary["sets"].items()
            for example in set_summary["examples"]
        ),
        key=lambda example: (-example["overlap"], example["set"], example["item"]),
    )
    tasks = [
        {
            "name": task_title(task),
            "model": model_title(model),
            "cells": [accuracy_text(parts[part]) for part in ("all", "not_found", "removed", "left")],
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
                "set": example["set"],
                "item": example["item"],
                "overlap": format_percent(example["overlap"]),
                "documents": format_integer(example["documents"]),
                "url": next(iter(example["urls"]), ""),
            }
            for example in examples[:EXAMPLES_SHOWN]
        ],
        "tasks": tasks,
        "about": (
            f"Searched for in the text that would have been trained on, by {nested_value(summary, 'method')} of "
            f"{nested_value(summary, 'words')} words; found: "
            f"an overlap above {nested_value(summary, 'overlap_max')}. Documents: {format_integer(documents.get('dropped', 0))} dropped, "
            f"{format_integer(documents.get('cut', 0))} cut, {format_integer(documents.get('left', 0))} left. No model has seen an item "
            "whose documents were dropped or cut; only those that are left are contaminated."
        ),
    }
