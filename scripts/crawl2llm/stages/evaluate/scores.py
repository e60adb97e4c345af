"""From results by item to the numbers of a public task, and CORE's centered mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.formats.public_tasks.measures import DIGITS, standard_error

BITS_PER_BYTE = "bits_per_byte"  # of the right answer
Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """One item: whether it is right by the task's headline, the chance of a guess, what else its line holds, other metrics of it.

    cut: its text was longer than the model's context. left_out: an answer alone was; it counts nowhere.
    """

    id: str
    right: bool
    chance: float
    line: Row
    other_metrics: dict[str, float] = field(default_factory=dict)
    cut: bool = False
    left_out: bool = False


def measure_task(task: str, outcomes: Sequence[Outcome], seed: int) -> tuple[Row, list[Row]]:
    """(a task's numbers, a line for each item that counts): accuracy, chance, centered, standard errors; None of a task of no items.

    The error is by bootstrap over items, 1,000 times.
    """
    counted_outcomes = [outcome for outcome in outcomes if not outcome.left_out]
    measures: Row = dict.fromkeys(("accuracy", "chance", "centered", "stderr", "centered_stderr"))
    if counted_outcomes:
        accuracy = sum(outcome.right for outcome in counted_outcomes) / len(counted_outcomes)
        chance = sum(outcome.chance for outcome in counted_outcomes) / len(counted_outcomes)
        stderr = standard_error(
            [outcome.right for outcome in counted_outcomes], [outcome.id for outcome in counted_outcomes], seed, task
        )
        measures = {
            "accuracy": accuracy,
            "chance": chance,
            "centered": (accuracy - chance) / (1 - chance),
            "stderr": stderr,
            "centered_stderr": None if stderr is None else stderr / (1 - chance),
            **{
                name: sum(outcome.other_metrics[name] for outcome in counted_outcomes) / len(counted_outcomes)
                for name in counted_outcomes[0].other_metrics
            },
        }
        if BITS_PER_BYTE in counted_outcomes[0].other_metrics:
            bits = [outcome.other_metrics[BITS_PER_BYTE] for outcome in counted_outcomes]
            ids = [outcome.id for outcome in counted_outcomes]
            measures[f"{BITS_PER_BYTE}_stderr"] = standard_error(bits, ids, seed, task)
    lines = [
        {"task": task, "id": outcome.id, "document": outcome.id, "right": outcome.right, **round_numbers(outcome.line)}
        for outcome in counted_outcomes
    ]
    return {
        **round_numbers(measures),
        "items": len(counted_outcomes),
        "cut_to_context": sum(outcome.cut for outcome in counted_outcomes),
        "left_out_too_long": len(outcomes) - len(counted_outcomes),
    }, lines


def round_numbers(fields: Row) -> Row:
    """Numbers with six decimals."""

    def round_value(value: Any) -> Any:
        if isinstance(value, list):
            return [round_value(entry) for entry in value]
        return round(value, DIGITS) if isinstance(value, float) else value

    return {key: round_value(value) for key, value in fields.items()}


def core_score(results: dict[str, Row], tasks: Sequence[str], missing: Sequence[str]) -> Row:
    """The mean centered accuracy of CORE's tasks and its standard error: that of a mean of independent tasks.

    Of all tasks it is DCLM's CORE (arXiv:2406.11794, section 3.5); of fewer it is no such number, and `missing` names the others.
    """
    task_results = [results[f"core.{name}"] for name in tasks if f"core.{name}" in results]
    scored_tasks = [result for result in task_results if result["centered"] is not None]
    errors = [scored_task["centered_stderr"] or 0.0 for scored_task in scored_tasks]
    return {
        **round_numbers(
            {
                "centered": sum(scored_task["centered"] for scored_task in scored_tasks) / len(scored_tasks)
                if scored_tasks
                else None,
                "stderr": math.sqrt(sum(value**2 for value in errors)) / len(scored_tasks) if scored_tasks else None,
            }
        ),
        "tasks": len(scored_tasks),
        "of": len(tasks),
        "missing": list(missing),
    }


def check_finite(task: str, item: str, nats: Sequence[float]) -> None:
    """Raise InputError if a log-likelihood is no finite number: of such choices the first would count as chosen."""
    if not all(math.isfinite(value) for value in nats):
        raise InputError(
            f"{task}, item {item}: the model's log-likelihoods are {list(nats)}; they must be finite numbers: its weights are damaged, "
            "or its training diverged"
        )
