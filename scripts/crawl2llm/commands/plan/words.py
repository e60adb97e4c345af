"""A plan in words: its lines, its total, and what it was made from."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

from crawl2llm.chain import steps
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import Estimate
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.core.console import format_duration
from crawl2llm.core.phrases import join_with_and


def time_text(cost: Estimate) -> str:
    """`1m20s`; `?` where nothing of it was ever measured, `>1m20s` where a part of it was not."""
    if cost.unknown == cost.tasks:
        return "?"
    more_than = ">" if cost.unknown else ""
    return f"{more_than}{format_duration(cost.seconds) if cost.seconds >= 1 else '<1s'}"


def gpu_hours_text(cost: Estimate) -> str:
    """GPU-hours with two digits; empty if no GPU is known to be used, `?` where nothing was measured."""
    if cost.unknown == cost.tasks:
        return "?"
    return f"{cost.gpu_hours:,.2f}" if cost.gpu_hours else ""


def gpu_column(text: str, gpus: bool) -> str:
    """The column of GPU-hours of a line; empty without GPUs."""
    return f"{text:>8} " if gpus else ""


def plan_lines(
    reason_counts: dict[str, Counter[str]], costs: dict[str, Estimate], gpus: bool, width: int
) -> Iterator[str]:
    """The plan line by line, at most `width` columns wide. gpus: with a column of GPU-hours."""
    yield f"{'rule':<18} {'tasks':>6} {'about':>8} {gpu_column('GPU-h', gpus)} why"
    for rule, counts in reason_counts.items():
        cost = costs.get(rule, Estimate(unknown=1, tasks=1))
        for number, (words, count) in enumerate(counts.most_common()):
            name, about, gpu_hours = ("", "", "") if number else (rule, time_text(cost), gpu_hours_text(cost))
            head = f"{name:<18} {count:>6,} {about:>8} {gpu_column(gpu_hours, gpus)} "
            yield from textwrap.wrap(
                words, width, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
            )
    total = sum(costs.values(), Estimate())
    tasks = sum(map(Counter.total, reason_counts.values()))
    yield f"{'total':<18} {tasks:>6,} {time_text(total):>8} {gpu_column(gpu_hours_text(total), gpus)}".rstrip()


def total_text(costs: dict[str, Estimate], gpus: bool, cores: int | None) -> str:
    """The total in words, and what it was made from."""
    total = sum(costs.values(), Estimate())
    if total.unknown == total.tasks:
        return "how long it takes is not known: no step of this plan has a benchmark file in this folder"
    unmeasured = [steps.step_of(rule) for rule, cost in costs.items() if cost.unknown]
    at_least = "at least " if unmeasured else ""
    place = "all tasks of a step at once, without the time in the queue" if cores is None else f"on {cores} cores"
    card = f" and {at_least}{total.gpu_hours:,.2f} GPU-hours" if gpus else ""
    unknown = f" Never measured: {join_with_and(unmeasured)}." if unmeasured else ""
    return (
        f"estimate: {at_least}{format_duration(total.seconds)}{card}, one step after another, {place}. It is made from the benchmark "
        f"files of the last run in this folder, scaled by what each step reads now.{unknown} A task whose input turns out the "
        "same as before ends at once."
    )


def copy_size_text(tasks: list[Task], last: LastRun, variants: dict[str, Any]) -> str:
    """How much ingest.fetch copies, by the list of remote files, in words."""
    fetch_tasks = [task for task in tasks if task.step == steps.FETCH]
    if any(task.step == steps.LIST for task in tasks):
        return "How much ingest.fetch copies is known after ingest.list: run that alone (--until ingest_list), and plan again."
    total = unknown = 0
    for task in fetch_tasks:
        manifest = next(name for name in task.inputs if name.endswith("ingest/list/manifest.json"))
        folder, config = (last.folder / manifest).parent, variants.get(task.variant)
        shards = steps.result_ids_of_task(task.step, task.id, config) if config else [task.id]
        for shard in shards:
            for file_entry in json.loads((folder / f"{shard}.json").read_text(encoding="utf-8")):
                total, unknown = total + (file_entry["bytes"] or 0), unknown + (file_entry["bytes"] is None)
    more = f", and {unknown:,} files whose servers tell no length" if unknown else ""
    size = f"{total / 1e9:,.1f} GB" if total >= 1e9 else f"{total / 1e6:,.1f} MB"
    return f"ingest.fetch copies {size} below results/{more}."
