"""The public tasks as the report's table: what each model reaches on each task beside guessing, and CORE's centered mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crawl2llm.chain.model_registry import UNTRAINED
from crawl2llm.formats.run_records import Run, dig
from crawl2llm.stages.report.models import title
from crawl2llm.stages.report.page import NOTHING, integer, percent, signed
from crawl2llm.stages.report.tasks import centered, share

STEP = "evaluate.public"
CORE = "core"
TITLES = {
    "hellaswag": "HellaSwag", "arc_easy": "ARC easy", "arc_challenge": "ARC challenge", "piqa": "PIQA", "winogrande": "WinoGrande",
    "lambada": "LAMBADA", "boolq": "BoolQ", "openbookqa": "OpenBookQA", "copa": "COPA", "commonsense_qa": "CommonsenseQA", "sciq": "SciQ",
    "siqa": "Social IQa", "mmlu": "MMLU", "gsm8k": "GSM8K", "blimp": "BLiMP",
}  # fmt: skip


def name(task: str) -> str:
    """`HellaSwag` of `hellaswag`, `CORE: jeopardy` of `core.jeopardy`; of what is no public task, such as a file, its own name."""
    return f"CORE: {task.removeprefix(f'{CORE}.')}" if task.startswith(f"{CORE}.") else TITLES.get(task, task)


def is_public(task: str) -> bool:
    """Whether a measure of evaluate.compare is a public task's."""
    return task in TITLES or task.startswith(f"{CORE}.")


def note(of: dict[str, Any]) -> str:
    """What a task was measured on: items of how many, examples before each, and what did not fit the context."""
    said = f"{integer(of['items'])} of {integer(of['rows'])} items"
    said += f", {of['shots']} examples" if of["shots"] else ""
    said += f"; {integer(of['cut_to_context'])} cut to the context" if of["cut_to_context"] else ""
    return said + (f"; {integer(of['left_out_too_long'])} left out, too long" if of["left_out_too_long"] else "")


def core(of: dict[str, Any] | None) -> tuple[str, str]:
    """CORE's centered mean with its standard error, and of how many tasks it is."""
    if not of or of["centered"] is None:
        return NOTHING, ""
    return f"{signed(of['centered'], 3)} ± {of['stderr']:.3f}", f"{of['tasks']} of {of['of']} tasks"


def table(run: Run, models: Iterable[str]) -> dict[str, Any]:
    """`heads` of the models that were asked, `rows` (name, chance, cells of (accuracy, centered), note) and `about`."""
    asked = [(model, run.task(STEP, model)) for model in (UNTRAINED, *models)]
    found = [(model, made.summary) for model, made in asked if made]
    rows = []
    for task in dict.fromkeys(task for _, summary in found for task in summary["tasks"]):
        results = [summary["tasks"].get(task) for _, summary in found]
        first = next(one for one in results if one)
        rows.append(
            {
                "name": name(task),
                "chance": percent(first["chance"]),
                "cells": [(share(one), centered(one)) if one else (NOTHING, "") for one in results],
                "note": note(first),
            }
        )
    means = [core(summary.get(CORE)) for _, summary in found]
    missing: list[str] = next(
        (dig(summary, CORE, "missing") for _, summary in found if dig(summary, CORE, "missing")), []
    )
    if any(mean for mean, _ in means if mean != NOTHING):
        rows.append(
            {
                "name": "CORE, centered mean",
                "chance": "0",
                "cells": means,
                "note": f"without {', '.join(missing)}" if missing else "",
            }
        )
    return {
        "heads": [model if model == UNTRAINED else title(model) for model, _ in found],
        "rows": rows,
        "about": (
            "Definitions and metrics of lm-evaluation-harness; CORE as in DCLM. Accuracy ± standard error by bootstrap over items; below "
            "it the centered score. What lies within two standard errors of chance is not to be told from guessing."
        ),
    }
