"""Of which group how much is trained on, phase by phase: shares of the tokens, from weights, epochs or a temperature, under caps.

Nothing here reads a file. A group is a part of the training text (a source, a language, a bucket of quality) that is cut into windows by
itself. An epoch of a group is one pass over its windows; up to 4 cost little (Muennighoff et al. 2023, https://arxiv.org/abs/2305.16264).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.schedule import Plan

WHERE = "pretrain.mix"
WAYS = ("shares", "epochs", "temperature")  # of which a phase has one
DECAY = "decay"  # an `until`: where the learning rate of the schedule wsd begins to fall
EVEN = 1e-9  # shares that add up to 1 within this do


@dataclass(frozen=True)
class Group:
    """A part of the training text. windows: of `context` tokens and the one after, cut from its documents alone."""

    name: str
    tokens: int
    windows: int


@dataclass(frozen=True)
class Phase:
    """Windows [first, first + windows) of a run, of which each group has its share; `shares` are in the groups' order and sum to 1."""

    first: int
    windows: int
    shares: tuple[float, ...]


def way(phase: Mapping[str, Any], number: int) -> str:
    """Which of WAYS a phase has. Raises InputError unless it is exactly one. number: of the phase, from 1."""
    given = [key for key in WAYS if phase.get(key) is not None]
    if len(given) != 1:
        raise InputError(
            f"{WHERE}.phases.{number} has {' and '.join(given) or 'none'} of {', '.join(WAYS)}: give exactly one of them"
        )
    return given[0]


def check(mix: Mapping[str, Any], schedule: str) -> None:
    """InputError for phases that no corpus goes with. mix: the section pretrain.mix. schedule: pretrain.train.schedule."""
    last = 0.0
    for number, phase in enumerate(mix["phases"], 1):
        here, until = f"{WHERE}.phases.{number}", phase.get("until")
        chosen = way(phase, number)
        if chosen == "shares" and (total := sum(phase["shares"].values())) > 1 + EVEN:
            raise InputError(f"{here}.shares add up to {total:g}, more than 1")
        if (until is None) != (number == len(mix["phases"])):
            wrong = "is the last, and ends with the training" if until is not None else "is not the last"
            raise InputError(f"{here} {wrong}: every phase but the last has `until`, a share of the training's tokens")
        if until == DECAY and schedule != "wsd":
            raise InputError(
                f"{here}.until is decay, and pretrain.train.schedule is {schedule!r}: only wsd has a step from which on the rate falls; "
                "give a share of the tokens"
            )
        if isinstance(until, int | float):
            if until <= last:
                raise InputError(f"{here}.until is {until:g}, not above the {last:g} of the phase before")
            last = until


def check_names(mix: Mapping[str, Any], names: Sequence[str]) -> None:
    """InputError for a group that the section pretrain.mix names and that is not among `names`, the sources of the config."""
    named = [
        (f"phases.{number}.{key}", name)
        for number, phase in enumerate(mix["phases"], 1)
        for key in ("shares", "epochs")
        for name in phase.get(key) or {}
    ]
    for key, name in [*named, *(("max_epochs_of", name) for name in mix["max_epochs_of"])]:
        if name not in names:
            raise InputError(f"{WHERE}.{key} names {name!r}, and ingest.extract.sources has {', '.join(names)}")


def borders(phases: Sequence[Mapping[str, Any]], plan: Plan, settings: Mapping[str, Any]) -> list[int]:
    """The last step of each phase: the first by which its share of all tokens is trained on. settings: pretrain.train.

    Raises InputError for a phase without a step.
    """
    whole, ends = plan.tokens(plan.steps), list[int]()
    for number, phase in enumerate(phases, 1):
        until = phase.get("until")
        if until is None:
            end = plan.steps
        elif until == DECAY:
            end = plan.steps - round(settings["decay"] * plan.steps)
        else:
            low, high = 0, plan.steps  # the fewest steps that reach it
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if plan.tokens(middle) < until * whole else (low, middle)
            end = low
        if end <= (ends[-1] if ends else 0):
            raise InputError(
                f"{WHERE}.phases.{number} ends with step {end:,} of {plan.steps:,}, where the phase before ends: it has no step"
            )
        ends.append(end)
    return ends


def wanted(phase: Mapping[str, Any], number: int, groups: Sequence[Group]) -> list[float]:
    """The share of each group that a phase asks for, before caps; they sum to 1.

    `shares`: groups that it does not name have what is left, in proportion to their tokens. `epochs`: in proportion to epochs × tokens,
    and a group that it does not name has 1. `temperature` T: in proportion to tokens^(1/T) (XLM-R, https://arxiv.org/abs/1911.02116
    section 3, and mT5, https://arxiv.org/abs/2010.11934 section 3.2, whose α is 1/T). A group without a window has nothing of what is
    shared out.
    Raises InputError for a name that is no group, and where nothing is left to be shared out, or nobody has it.
    """
    here, chosen = f"{WHERE}.phases.{number}", way(phase, number)
    names, known = [group.name for group in groups], ", ".join(group.name for group in groups)
    if chosen == "temperature":
        sizes = [group.tokens ** (1 / phase["temperature"]) if group.windows else 0.0 for group in groups]
        return [size / sum(sizes) for size in sizes]
    given = phase[chosen]
    if unknown := sorted(given.keys() - set(names)):
        raise InputError(
            f"{here}.{chosen} names {unknown[0]!r}, of which the training text has nothing; it has {known}"
        )
    if chosen == "epochs":
        sizes = [given.get(group.name, 1.0) * group.tokens if group.windows else 0.0 for group in groups]
        if not sum(sizes):
            raise InputError(f"{here}.epochs leave no tokens to train on; the training text has {known}")
        return [size / sum(sizes) for size in sizes]
    left = 1 - sum(given.values())
    others = [0 if group.name in given or not group.windows else group.tokens for group in groups]
    if left > EVEN and not sum(others):
        raise InputError(f"{here}.shares add up to {1 - left:g}, not to 1, and there is no other group than {known}")
    rest = max(left, 0.0) if left > EVEN else 0.0
    found = [
        given.get(group.name, rest * other / max(sum(others), 1)) for group, other in zip(groups, others, strict=True)
    ]
    return [share / sum(found) for share in found]


def allotted(
    shares: Sequence[Sequence[float]], sizes: Sequence[int], caps: Sequence[float]
) -> tuple[list[list[float]], list[int]]:
    """Windows of each phase and group, and the groups that are held at their cap.

    shares: what each phase asks for. sizes: windows of each phase. caps: the most windows of each group, over all phases. A group that
    would have more has its cap, in the proportion of the phases; what it leaves goes to the others of each phase in proportion to
    their shares, until none is above its cap. A phase whose groups are all held has fewer windows than its size.
    """
    parts, held = [[share * size for share in row] for row, size in zip(shares, sizes, strict=True)], list[int]()
    while True:
        above = [
            group
            for group, cap in enumerate(caps)
            if group not in held and sum(row[group] for row in parts) > cap * (1 + EVEN)
        ]
        if not above:
            return parts, sorted(held)
        for group in above:
            whole = sum(row[group] for row in parts)
            for row in parts:
                row[group] *= caps[group] / whole
        held += above
        for row, asked, size in zip(parts, shares, sizes, strict=True):
            free = [group for group in range(len(caps)) if group not in held]
            left, weight = size - sum(row[group] for group in held), sum(asked[group] for group in free)
            for group in free:
                row[group] = max(left, 0.0) * asked[group] / weight if weight else 0.0


def phases(
    mix: Mapping[str, Any], groups: Sequence[Group], plan: Plan, settings: Mapping[str, Any]
) -> tuple[list[Phase], list[str]]:
    """The phases of a run, and the names of groups that are held at their cap. settings: pretrain.train, complete.

    Raises InputError where no group has a window; where a group is asked for more epochs than its cap, with the group, its tokens and
    those that are wanted, unless `shortage` is `share`; and then where all groups of a phase are held and tokens are still wanting.
    """
    if not any(group.windows for group in groups):
        raise InputError(
            f"no group of {WHERE}.by has the {plan.context + 1} tokens of a window: {', '.join(group.name for group in groups)}"
        )
    ends = borders(mix["phases"], plan, settings)
    firsts = [0, *(plan.span(end + 1)[0] for end in ends)]
    sizes = [after - before for before, after in pairwise(firsts)]
    asked = [wanted(phase, number, groups) for number, phase in enumerate(mix["phases"], 1)]
    if unknown := sorted(mix["max_epochs_of"].keys() - {group.name for group in groups}):
        known = ", ".join(group.name for group in groups)
        raise InputError(
            f"{WHERE}.max_epochs_of names {unknown[0]!r}, of which the training text has nothing; it has {known}"
        )
    most = [mix["max_epochs_of"].get(group.name, mix["max_epochs"]) for group in groups]
    caps = [number * group.windows for number, group in zip(most, groups, strict=True)]
    parts, held = allotted(asked, sizes, caps)
    if held and mix["shortage"] == "refuse":
        raise InputError(short(held, asked, sizes, groups, most, plan.context))
    for number, (row, size) in enumerate(zip(parts, sizes, strict=True), 1):
        if not sum(row) or sum(row) < size - 1:
            raise InputError(
                f"{WHERE}.phases.{number} is to train on {size * plan.context:,} tokens, and under the caps its groups give "
                f"{round(sum(row)) * plan.context:,}: raise {WHERE}.max_epochs or max_epochs_of, name more groups, or train on fewer tokens"
            )
    made = [
        Phase(first, size, tuple(part / sum(row) for part in row))
        for first, size, row in zip(firsts, sizes, parts, strict=False)
    ]
    return made, [groups[number].name for number in held]


def short(
    held: Sequence[int],
    asked: Sequence[Sequence[float]],
    sizes: Sequence[int],
    groups: Sequence[Group],
    most: Sequence[float],
    context: int,
) -> str:
    """What to say where groups are asked for more than they have under their caps."""
    found = []
    for number in held:
        group, need = groups[number], sum(row[number] * size for row, size in zip(asked, sizes, strict=True)) * context
        passes = f"{need / context / group.windows:.2f} epochs" if group.windows else "it has not one window"
        found.append(
            f"{group.name}: {group.tokens:,} tokens are there, {round(need):,} are wanted ({passes}; at most {most[number]:g})"
        )
    return (
        f"the mix asks for more than the training text has under {WHERE}.max_epochs. {'. '.join(found)}. Lower their shares, train on "
        f"fewer tokens, raise {WHERE}.max_epochs or max_epochs_of, or set {WHERE}.shortage to share: the others then take what is wanting"
    )
