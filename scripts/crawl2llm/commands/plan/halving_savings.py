"""What stopping trainings at rungs saves, before it is known which ones stop: between what the fewest and the most that go on take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from crawl2llm.chain import halving, steps
from crawl2llm.chain.model_registry import BASE_STEP
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.core.console import duration
from crawl2llm.stages.pretrain.halving import judging

if TYPE_CHECKING:
    from crawl2llm.commands.plan.complete import Plan


def going_on(number: int, rungs: int, keep: float) -> list[tuple[int, int]]:
    """(fewest, most) settings of `number`, main's among them, that train up to rung 1, 2, … and to the end.

    It is the fewest where main's is the best at each rung, and the most where it is the last.
    """
    out = [(number, number)]
    for _ in range(rungs):
        left = []
        for of, main in zip(out[-1], (0.0, 2.0), strict=True):
            losses = {halving.MAIN: main} | {f"v{other}": 1.0 for other in range(1, of)}
            left.append(len(judging.staying(judging.ranked(losses, {name: name for name in losses}, keep))))
        out.append((left[0], left[1]))
    return out


def stretch(task: Task, rungs: int) -> int | None:
    """Which stretch of a training a task is: 0 up to the first rung, …, the number of rungs to the end; None for another task."""
    if task.step == steps.RUNG:
        return halving.parsed(task.id)[1] - 1
    return rungs if task.step == BASE_STEP else None


def lines(plan: Plan) -> Iterator[str]:
    """A line for people where trainings are judged at rungs."""
    config = plan.project.variants["main"] if plan.project else None
    if config is None or not halving.is_used(config):
        return
    own = config["sweep"]["halving"]
    rungs, settings = len(own["rungs"]), len(set(halving.groups(config).values()))
    left = going_on(settings, rungs, own["keep"])
    whole = fewest = most = 0.0
    unknown = False
    for task in plan.tasks:
        if (number := stretch(task, rungs)) is not None:
            seconds = plan.work.seconds(task)
            unknown |= seconds is None
            whole += seconds or 0
            fewest += (seconds or 0) * left[number][0] / settings
            most += (seconds or 0) * left[number][1] / settings
    goes = ", ".join(f"{between(*counts)} after rung {rung}" for rung, counts in enumerate(left[1:], 1))
    cost = (
        ""
        if unknown or not whole
        else f": trainings take about {between(duration(fewest), duration(most))} in all, one after another, and {duration(whole)} without "
        "halving"
    )
    yield f"halving: of {settings} settings go on {goes}, main's always among them{cost}"


def between(low: object, high: object) -> str:
    """`2`, or `2 to 3` where they differ."""
    return f"{low}" if low == high else f"{low} to {high}"
