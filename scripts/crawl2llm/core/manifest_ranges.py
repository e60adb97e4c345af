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

OWN = "{}"  # in the name of a part: the number of the task
RANGE = re.compile(r"(\S+) \{(\d+)\.\.(\d+)\}")
Inputs = dict[str, dict[str, str]]  # as in a manifest: input → part → digest


def packed(inputs: Inputs) -> Inputs:
    """The same inputs with ranges where there can be any, sorted."""

    def alike(place: tuple[int, str]) -> tuple[object, ...]:
        """Equal for neighbours in the sorted list that belong to one range."""
        row, key = place
        step, _, task = key.partition(" ")
        if not task.isdigit() or any(OWN in part for part in inputs[key]):
            return (key,)
        return step, len(task), int(task) - row, sorted(part.replace(task, OWN) for part in inputs[key])

    out: Inputs = {}
    for _, places in groupby(enumerate(sorted(inputs)), alike):
        keys = [key for _, key in places]
        step, _, first = keys[0].partition(" ")
        if len(keys) == 1:
            out[keys[0]] = inputs[keys[0]]
            continue
        numbers = [key.partition(" ")[2] for key in keys]
        names = [part.replace(first, OWN) for part in inputs[keys[0]]]
        out[f"{step} {{{first}..{numbers[-1]}}}"] = {
            name: " ".join(inputs[key][name.replace(OWN, task)] for key, task in zip(keys, numbers, strict=True))
            for name in names
        }
    return out


@cache
def tasks(key: str) -> tuple[str, tuple[str, ...]] | None:
    """(step, numbers of its tasks) of a range; None for a single input."""
    if (found := RANGE.fullmatch(key)) is None:
        return None
    step, first, last = found.groups()
    return step, tuple(f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))


def each(key: str, part: str, marks: str) -> Iterator[tuple[str, str, str]]:
    """(input, part, digest) of a part of an entry: one, or one for each task of a range."""
    if (found := tasks(key)) is None:
        yield key, part, marks
        return
    step, numbers = found
    for task, mark in zip(numbers, marks.split(" "), strict=True):
        yield f"{step} {task}", part.replace(OWN, task), mark


def unpacked(inputs: Inputs) -> Inputs:
    """The same inputs without ranges."""
    out: Inputs = {}
    for key, parts in inputs.items():
        found = tasks(key)
        out |= {key: {}} if found is None else {f"{found[0]} {task}": {} for task in found[1]}
        for part, marks in parts.items():
            for one, name, mark in each(key, part, marks):
                out[one][name] = mark
    return out


def check(inputs: Inputs) -> None:
    """Raises ValueError for a range with more digests than tasks, or fewer."""
    for key, parts in inputs.items():
        if "{" in key and (found := tasks(key)):
            for part, marks in parts.items():
                if marks.count(" ") + 1 != len(found[1]):
                    raise ValueError(f"{key} has {marks.count(' ') + 1} digests of {part}")
