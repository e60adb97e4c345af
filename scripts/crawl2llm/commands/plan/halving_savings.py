"""What stopping trainings at rungs saves, before it is known which ones stop: between what the fewest and the most that go on take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from crawl2llm.chain import halving, steps
from crawl2llm.chain.model_registry import BASE_STEP
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.core.console import format_duration
from crawl2llm.stages.pretrain.halving import judging

if TYPE_CHECKING:
    from crawl2llm.commands.plan.complete import Plan


def surviving_settings(number: int, rungs: int, keep: float) -> list[tuple[int, int]]:
    """(fewest, most) settings of `number`, main's among them, that train up to rung 1, 2, … and to the end.

    It is the fewest where main's is the best at each rung, and the most where it is the last.
    """
    out = [(number, number)]
    for _ in range(rungs):
        survivors = []
        for count, main in zip(out[-1], (0.0, 2.0), strict=True):
            losses = {halving.MAIN: main} | {f"v{other}": 1.0 for other in range(1, count)}
            survivors.append(
                len(judging.staying_contenders(judging.rank_settings(losses, {name: name for name in losses}, keep)))
            )
        out.append((survivors[0], survivors[1]))
    return out


def stretch_of(task: Task, rungs: int) -> int | None:
    """Which stretch of a training a task is: 0 up to the first rung, …, the number of rungs to the end; None for another task."""
    if task.step == steps.RUNG:
        return halving.parse_task(task.id)[1] - 1
    return rungs if task.step == BASE_STEP else None


def saving_lines(plan: Plan) -> Iterator[str]:
    """A line for people where trainings are judged at rungs."""
    config = plan.project.variants["main"] if plan.project else None
    if config is None or not halving.is_used(config):
        return
    halving_config = config["sweep"]["halving"]
    rungs, settings = len(halving_config["rungs"]), len(set(halving.setting_by_contender(config).values()))
    surviving = surviving_settings(settings, rungs, halving_config["keep"])
    whole = fewest = most = 0.0
    unknown = False
    for task in plan.tasks:
        if (number := stretch_of(task, rungs)) is not None:
            seconds = plan.work.seconds(task)
            unknown |= seconds is None
            whole += seconds or 0
            fewest += (seconds or 0) * surviving[number][0] / settings
            most += (seconds or 0) * surviving[number][1] / settings
    survivors_text = ", ".join(
        f"{range_text(*counts)} after rung {rung}" for rung, counts in enumerate(surviving[1:], 1)
    )
    cost = ""
    if whole and not unknown:
        durations = range_text(format_duration(fewest), format_duration(most))
        cost = f": trainings take about {durations} in all, one after another, and {format_duration(whole)} without halving"
    yield f"halving: of {settings} settings go on {survivors_text}, main's always among them{cost}"


def range_text(low: object, high: object) -> str:
    """`2`, or `2 to 3` where they differ."""
    return f"{low}" if low == high else f"{low} to {high}"
