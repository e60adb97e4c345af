"""The public tasks as the report's table: what each model reaches on each task beside guessing, and CORE's centered mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crawl2llm.chain.model_registry import UNTRAINED
from crawl2llm.formats.run_records import Run, nested_value
from crawl2llm.stages.report.models import model_title
from crawl2llm.stages.report.page import NOTHING, format_integer, format_percent, format_signed
from crawl2llm.stages.report.tasks import accuracy_text, centered_text

STEP = "evaluate.public"
CORE = "core"
ANSWER_BITS = ".bits_per_byte"  # in evaluate.compare behind the name of a task: of its right answers
TITLES = {
    "hellaswag": "HellaSwag", "arc_easy": "ARC easy", "arc_challenge": "ARC challenge", "piqa": "PIQA", "winogrande": "WinoGrande",
    "lambada": "LAMBADA", "boolq": "BoolQ", "openbookqa": "OpenBookQA", "copa": "COPA", "commonsense_qa": "CommonsenseQA", "sciq": "SciQ",
    "siqa": "Social IQa", "mmlu": "MMLU", "mmlu_cloze": "MMLU cloze", "triviaqa": "TriviaQA", "gsm8k": "GSM8K", "blimp": "BLiMP",
    "humaneval": "HumanEval", "humaneval_instruct": "HumanEval, instructed",
}  # fmt: skip


def task_title(task: str) -> str:
    """`HellaSwag` of `hellaswag`, `HellaSwag, bits per byte` of `hellaswag.bits_per_byte`, `CORE: jeopardy` of `core.jeopardy`; of what is
    no public task, such as a file, its own name.
    """
    if task.endswith(ANSWER_BITS):
        return f"{task_title(task.removesuffix(ANSWER_BITS))}, bits per byte"
    return f"CORE: {task.removeprefix(f'{CORE}.')}" if task.startswith(f"{CORE}.") else TITLES.get(task, task)


def is_public(task: str) -> bool:
    """Whether a measure of evaluate.compare is a public task's."""
    return task.removesuffix(ANSWER_BITS) in TITLES or task.startswith(f"{CORE}.")


def task_note(facts: dict[str, Any]) -> str:
    """What a task was measured on: items of how many, examples before each, and what did not fit the context."""
    words = f"{format_integer(facts['items'])} of {format_integer(facts['rows'])} items"
    words += f", {facts['shots']} examples" if facts["shots"] else ""
    words += f"; {format_integer(facts['cut_to_context'])} cut to the context" if facts["cut_to_context"] else ""
    return words + (
        f"; {format_integer(facts['left_out_too_long'])} left out, too long" if facts["left_out_too_long"] else ""
    )


def tasks_note(results: dict[str, dict[str, Any] | None]) -> str:
    """`task_note` of all models, by model where they differ: another tokenizer, or a shorter context, leaves out other items."""
    notes = {model: task_note(facts) for model, facts in results.items() if facts}
    if len({*notes.values()}) == 1:
        return next(iter(notes.values()))
    return " · ".join(f"{model}: {note}" for model, note in notes.items())


def bits_text(result: dict[str, Any]) -> str:
    """Bits per byte of the right answer with their standard error; nothing of an answer that is written freely."""
    bits, stderr = result.get("bits_per_byte"), result.get("bits_per_byte_stderr")
    if bits is None:
        return ""
    return f"; {bits:.3f} bits a byte" if stderr is None else f"; {bits:.3f} ± {stderr:.3f} bits a byte"


def core_cell(mean: dict[str, Any] | None) -> tuple[str, str]:
    """CORE's centered mean with its standard error, and of how many tasks it is."""
    if not mean or mean["centered"] is None:
        return NOTHING, ""
    return f"{format_signed(mean['centered'], 3)} ± {mean['stderr']:.3f}", f"{mean['tasks']} of {mean['of']} tasks"


def table(run: Run, models: Iterable[str]) -> dict[str, Any]:
    """`heads` of the models that were asked, `rows` (name, chance, cells of (accuracy, centered), note) and `about`."""
    manifests = [(model, run.task(STEP, model)) for model in (UNTRAINED, *models)]
    summaries = [(model, manifest.summary) for model, manifest in manifests if manifest]
    rows = []
    for task in dict.fromkeys(task for _, summary in summaries for task in summary["tasks"]):
        results = [summary["tasks"].get(task) for _, summary in summaries]
        first = next(result for result in results if result)
        rows.append(
            {
                "name": task_title(task),
                "chance": format_percent(first["chance"]),
                "cells": [
                    (accuracy_text(result), centered_text(result) + bits_text(result)) if result else (NOTHING, "")
                    for result in results
                ],
                "note": tasks_note({model: summary["tasks"].get(task) for model, summary in summaries}),
            }
        )
    means = [core_cell(summary.get(CORE)) for _, summary in summaries]
    missing: list[str] = next(
        (nested_value(summary, CORE, "missing") for _, summary in summaries if nested_value(summary, CORE, "missing")),
        [],
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
        "heads": [model if model == UNTRAINED else model_title(model) for model, _ in summaries],
        "rows": rows,
        "about": (
            "Definitions and metrics of lm-evaluation-harness; CORE as in DCLM. Accuracy ± standard error by bootstrap over items; below "
            "it the centered score and the bits for each byte of the right answer. A score within two standard errors of chance does "
            "not differ significantly from guessing."
        ),
    }
