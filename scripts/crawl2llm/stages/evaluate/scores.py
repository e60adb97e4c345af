"""From results by item to the numbers of a public task, and CORE's centered mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.formats.public_tasks.measures import DIGITS, error

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
    also: dict[str, float] = field(default_factory=dict)
    cut: bool = False
    left_out: bool = False


def measured(task: str, outcomes: Sequence[Outcome], seed: int) -> tuple[Row, list[Row]]:
    """(a task's numbers, a line for each item that counts): accuracy, chance, centered, standard errors; None of a task of no items.

    The error is by bootstrap over items, 1,000 times.
    """
    kept = [one for one in outcomes if not one.left_out]
    found: Row = dict.fromkeys(("accuracy", "chance", "centered", "stderr", "centered_stderr"))
    if kept:
        accuracy = sum(one.right for one in kept) / len(kept)
        chance = sum(one.chance for one in kept) / len(kept)
        wide = error([one.right for one in kept], [one.id for one in kept], seed, task)
        found = {
            "accuracy": accuracy,
            "chance": chance,
            "centered": (accuracy - chance) / (1 - chance),
            "stderr": wide,
            "centered_stderr": None if wide is None else wide / (1 - chance),
            **{name: sum(one.also[name] for one in kept) / len(kept) for name in kept[0].also},
        }
    lines = [{"task": task, "id": one.id, "document": one.id, "right": one.right, **rounded(one.line)} for one in kept]
    return {
        **rounded(found),
        "items": len(kept),
        "cut_to_context": sum(one.cut for one in kept),
        "left_out_too_long": len(outcomes) - len(kept),
    }, lines


def rounded(found: Row) -> Row:
    """Numbers with six decimals."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        return round(value, DIGITS) if isinstance(value, float) else value

    return {key: plain(value) for key, value in found.items()}


def core(results: dict[str, Row], tasks: Sequence[str], missing: Sequence[str]) -> Row:
    """The mean centered accuracy of CORE's tasks and its standard error: that of a mean of independent tasks.

    Of all tasks it is DCLM's CORE (arXiv:2406.11794, section 3.5); of fewer it is no such number, and `missing` names the others.
    """
    found = [results[f"core.{name}"] for name in tasks if f"core.{name}" in results]
    known = [one for one in found if one["centered"] is not None]
    errors = [one["centered_stderr"] or 0.0 for one in known]
    return {
        **rounded(
            {
                "centered": sum(one["centered"] for one in known) / len(known) if known else None,
                "stderr": math.sqrt(sum(value**2 for value in errors)) / len(known) if known else None,
            }
        ),
        "tasks": len(known),
        "of": len(tasks),
        "missing": list(missing),
    }


def finite(task: str, item: str, nats: Sequence[float]) -> None:
    """Raise InputError where a log-likelihood is no finite number: of such choices the first would count as chosen."""
    if not all(math.isfinite(value) for value in nats):
        raise InputError(
            f"{task}, item {item}: the model's log-likelihoods are {list(nats)}; they must be finite numbers: its weights are damaged, "
            "or its training diverged"
        )
