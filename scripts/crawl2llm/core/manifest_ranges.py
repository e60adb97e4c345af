"""Many inputs of one step as one entry of a manifest: `dedup.sets {00000..04095}` in place of 4,096 entries.

Tasks with consecutive numbers, of which the same parts were consumed, are one range. `{}` in the name of a part stands for the task's own
number, and the digests of a part stand one after the other, in the order of the tasks. No digest is left out, so it is known which input
differs; but what hundreds of results consumed alike is one text, which is compared once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby

TASK_NUMBER = "{}"  # in the name of a part: the number of the task
RANGE = re.compile(r"(\S+) \{(\d+)\.\.(\d+)\}")
Inputs = dict[str, dict[str, str]]  # as in a manifest: input → part → digest


def pack_ranges(inputs: Inputs) -> Inputs:
    """The same inputs with ranges where there can be any, sorted."""

    def range_key(place: tuple[int, str]) -> tuple[object, ...]:
        """Equal for neighbours in the sorted list that belong to one range."""
        row, key = place
        step, _, task = key.partition(" ")
        if not task.isdigit() or any(TASK_NUMBER in part for part in inputs[key]):
            return (key,)
        return step, len(task), int(task) - row, sorted(part.replace(task, TASK_NUMBER) for part in inputs[key])

    out: Inputs = {}
    for _, places in groupby(enumerate(sorted(inputs)), range_key):
        keys = [key for _, key in places]
        step, _, first = keys[0].partition(" ")
        if len(keys) == 1:
            out[keys[0]] = inputs[keys[0]]
            continue
        numbers = [key.partition(" ")[2] for key in keys]
        names = [part.replace(first, TASK_NUMBER) for part in inputs[keys[0]]]
        out[f"{step} {{{first}..{numbers[-1]}}}"] = {
            name: " ".join(
                inputs[key][name.replace(TASK_NUMBER, task)] for key, task in zip(keys, numbers, strict=True)
            )
            for name in names
        }
    return out


@cache
def range_tasks(key: str) -> tuple[str, tuple[str, ...]] | None:
    """(step, numbers of its tasks) of a range; None for a single input."""
    if (match := RANGE.fullmatch(key)) is None:
        return None
    step, first, last = match.groups()
    return step, tuple(f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))


def part_digests(key: str, part: str, marks: str) -> Iterator[tuple[str, str, str]]:
    """(input, part, digest) of a part of an entry: one, or one for each task of a range."""
    if (task_range := range_tasks(key)) is None:
        yield key, part, marks
        return
    step, numbers = task_range
    for task, mark in zip(numbers, marks.split(" "), strict=True):
        yield f"{step} {task}", part.replace(TASK_NUMBER, task), mark


def unpack_ranges(inputs: Inputs) -> Inputs:
    """The same inputs without ranges."""
    out: Inputs = {}
    for key, parts in inputs.items():
        task_range = range_tasks(key)
        out |= {key: {}} if task_range is None else {f"{task_range[0]} {task}": {} for task in task_range[1]}
        for part, marks in parts.items():
            for input_key, name, mark in part_digests(key, part, marks):
                out[input_key][name] = mark
    return out


def check_ranges(inputs: Inputs) -> None:
    """Raises ValueError for a range with more digests than tasks, or fewer."""
    for key, parts in inputs.items():
        if "{" in key and (task_range := range_tasks(key)):
            for part, marks in parts.items():
                if marks.count(" ") + 1 != len(task_range[1]):
                    raise ValueError(f"{key} has {marks.count(' ') + 1} digests of {part}")
