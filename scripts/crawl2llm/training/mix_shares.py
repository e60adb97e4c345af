"""Of which group how much is trained on, phase by phase: shares of the tokens, from weights, epochs or a temperature, under caps.

Nothing here reads a file. A group is a part of the training text (a source, a language, a bucket of quality) that is cut into windows by
itself. An epoch of a group is one pass over its windows; up to 4 cost little (Muennighoff et al. 2023, https://arxiv.org/abs/2305.16264).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from crawl2llm.core.errors import InputError
from crawl2llm.training.pretraining_settings import MixPhase, MixSettings
from crawl2llm.training.schedule import Plan

SECTION = "pretrain.mix"
SHARE_KEYS = ("shares", "epochs", "temperature")  # of which a phase has one
DECAY = "decay"  # an `until`: where the learning rate of the schedule wsd begins to fall
SHARE_TOLERANCE = 1e-9  # shares that add up to 1 within this do


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


def share_key(phase: MixPhase, number: int) -> str:
    """Which of SHARE_KEYS a phase has. Raises InputError unless it is exactly one. number: of the phase, from 1."""
    given_keys = [key for key in SHARE_KEYS if getattr(phase, key) is not None]
    if len(given_keys) != 1:
        raise InputError(
            f"{SECTION}.phases.{number} has {' and '.join(given_keys) or 'none'} of {', '.join(SHARE_KEYS)}: give exactly one of them"
        )
    return given_keys[0]


def check_phases(mix: MixSettings, schedule: str) -> None:
    """InputError for phases that no corpus goes with. mix: the section pretrain.mix. schedule: pretrain.train.schedule."""
    last = 0.0
    for number, phase in enumerate(mix.phases, 1):
        phase_key, until = f"{SECTION}.phases.{number}", phase.until
        share_key(phase, number)
        if (total := sum((phase.shares or {}).values())) > 1 + SHARE_TOLERANCE:
            raise InputError(f"{phase_key}.shares add up to {total:g}, more than 1")
        if (until is None) != (number == len(mix.phases)):
            problem = "is the last, and ends with the training" if until is not None else "is not the last"
            raise InputError(
                f"{phase_key} {problem}: every phase but the last has `until`, a share of the training's tokens"
            )
        if until == DECAY and schedule != "wsd":
            raise InputError(
                f"{phase_key}.until is decay, and pretrain.train.schedule is {schedule!r}: only wsd has a step from which on the rate "
                "falls; give a share of the tokens"
            )
        if isinstance(until, int | float):
            if until <= last:
                raise InputError(f"{phase_key}.until is {until:g}, not above the {last:g} of the phase before")
            last = until


def check_names(mix: MixSettings, names: Sequence[str]) -> None:
    """InputError for a group that the section pretrain.mix names and that is not among `names`, the sources of the config."""
    named_groups = [
        (f"phases.{number}.{key}", name)
        for number, phase in enumerate(mix.phases, 1)
        for key in ("shares", "epochs")
        for name in getattr(phase, key) or {}
    ]
    for key, name in [*named_groups, *(("max_epochs_of", name) for name in mix.max_epochs_of)]:
        if name not in names:
            raise InputError(f"{SECTION}.{key} names {name!r}, and ingest.extract.sources has {', '.join(names)}")


def last_steps(phases: Sequence[MixPhase], plan: Plan, decay: float) -> list[int]:
    """The last step of each phase: the first by which its share of all tokens is trained on. decay: of pretrain.train.

    Raises InputError for a phase without a step.
    """
    total_tokens, ends = plan.tokens_until(plan.steps), list[int]()
    for number, phase in enumerate(phases, 1):
        until = phase.until
        if until is None:
            end = plan.steps
        elif isinstance(until, str):  # DECAY
            end = plan.steps - round(decay * plan.steps)
        else:
            low, high = 0, plan.steps  # the fewest steps that reach it
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if plan.tokens_until(middle) < until * total_tokens else (low, middle)
            end = low
        if end <= (ends[-1] if ends else 0):
            raise InputError(
                f"{SECTION}.phases.{number} ends with step {end:,} of {plan.steps:,}, where the phase before ends: it has no step"
            )
        ends.append(end)
    return ends


def requested_shares(phase: MixPhase, number: int, groups: Sequence[Group]) -> list[float]:
    """The share of each group that a phase asks for, before caps; they sum to 1.

    `shares`: groups that it does not name have what is left, in proportion to their tokens. `epochs`: in proportion to epochs × tokens,
    and a group that it does not name has 1. `temperature` T: in proportion to tokens^(1/T) (XLM-R, https://arxiv.org/abs/1911.02116
    section 3, and mT5, https://arxiv.org/abs/2010.11934 section 3.2, whose α is 1/T). A group without a window has nothing of what is
    shared out.
    Raises InputError for a name that is no group, and where nothing is left to be shared out, or nobody has it.
    """
    phase_key, key = f"{SECTION}.phases.{number}", share_key(phase, number)
    names, known_names = [group.name for group in groups], ", ".join(group.name for group in groups)
    if phase.temperature is not None:
        sizes = [group.tokens ** (1 / phase.temperature) if group.windows else 0.0 for group in groups]
        if not sum(sizes):
            raise InputError(f"{phase_key}.temperature: each group has too few tokens for one window: {known_names}")
        return [size / sum(sizes) for size in sizes]
    values = phase.shares or phase.epochs or {}
    if unknown := sorted(values.keys() - set(names)):
        raise InputError(
            f"{phase_key}.{key} names {unknown[0]!r}, of which the training text has nothing; it has {known_names}"
        )
    if key == "epochs":
        sizes = [values.get(group.name, 1.0) * group.tokens if group.windows else 0.0 for group in groups]
        if not sum(sizes):
            raise InputError(f"{phase_key}.epochs leave no tokens to train on; the training text has {known_names}")
        return [size / sum(sizes) for size in sizes]
    left = 1 - sum(values.values())
    other_tokens = [0 if group.name in values or not group.windows else group.tokens for group in groups]
    if left > SHARE_TOLERANCE and not sum(other_tokens):
        raise InputError(
            f"{phase_key}.shares add up to {1 - left:g}, not to 1, and there is no other group than {known_names}"
        )
    rest = max(left, 0.0) if left > SHARE_TOLERANCE else 0.0
    shares = [
        values.get(group.name, rest * tokens / max(sum(other_tokens), 1))
        for group, tokens in zip(groups, other_tokens, strict=True)
    ]
    return [share / sum(shares) for share in shares]


def allot_windows(
    shares: Sequence[Sequence[float]], sizes: Sequence[int], caps: Sequence[float]
) -> tuple[list[list[float]], list[int]]:
    """Windows of each phase and group, and the groups that are held at their cap.

    shares: what each phase asks for. sizes: windows of each phase. caps: the most windows of each group, over all phases. A group that
    would have more has its cap, in the proportion of the phases; what it leaves goes to the others of each phase in proportion to
    their shares, until none is above its cap. A phase whose groups are all held has fewer windows than its size.
    """
    parts, capped = [[share * size for share in row] for row, size in zip(shares, sizes, strict=True)], list[int]()
    while True:
        above = [
            group
            for group, cap in enumerate(caps)
            if group not in capped and sum(row[group] for row in parts) > cap * (1 + SHARE_TOLERANCE)
        ]
        if not above:
            return parts, sorted(capped)
        for group in above:
            total = sum(row[group] for row in parts)
            for row in parts:
                row[group] *= caps[group] / total
        capped += above
        for row, requested, size in zip(parts, shares, sizes, strict=True):
            free = [group for group in range(len(caps)) if group not in capped]
            left, weight = size - sum(row[group] for group in capped), sum(requested[group] for group in free)
            for group in free:
                row[group] = max(left, 0.0) * requested[group] / weight if weight else 0.0


def check_windows(groups: Sequence[Group], context: int) -> None:
    """InputError if no group has a window."""
    if not any(group.windows for group in groups):
        raise InputError(
            f"no group of {SECTION}.by has the {context + 1} tokens of a window: {', '.join(group.name for group in groups)}"
        )


def plan_phases(mix: MixSettings, groups: Sequence[Group], plan: Plan, decay: float) -> tuple[list[Phase], list[str]]:
    """The phases of a run, and the names of groups that are held at their cap. decay: of pretrain.train.

    Raises InputError if no group has a window; where a group is asked for more epochs than its cap, with the group, its tokens and
    those that are wanted, unless `shortage` is `share`; and then where all groups of a phase are held and tokens are still wanting.
    """
    check_windows(groups, plan.context)
    ends = last_steps(mix.phases, plan, decay)
    firsts = [0, *(plan.window_span(end + 1)[0] for end in ends)]
    sizes = [after - before for before, after in pairwise(firsts)]
    requested = [requested_shares(phase, number, groups) for number, phase in enumerate(mix.phases, 1)]
    if unknown := sorted(mix.max_epochs_of.keys() - {group.name for group in groups}):
        known_names = ", ".join(group.name for group in groups)
        raise InputError(
            f"{SECTION}.max_epochs_of names {unknown[0]!r}, of which the training text has nothing; it has {known_names}"
        )
    most_epochs = [mix.max_epochs_of.get(group.name, mix.max_epochs) for group in groups]
    caps = [number * group.windows for number, group in zip(most_epochs, groups, strict=True)]
    parts, capped = allot_windows(requested, sizes, caps)
    if capped and mix.shortage == "refuse":
        raise InputError(shortage_text(capped, requested, sizes, groups, most_epochs, plan.context))
    for number, (row, size) in enumerate(zip(parts, sizes, strict=True), 1):
        if not sum(row) or sum(row) < size - 1:
            raise InputError(
                f"{SECTION}.phases.{number} is to train on {size * plan.context:,} tokens, and under the caps its groups give "
                f"{round(sum(row)) * plan.context:,}: raise {SECTION}.max_epochs or max_epochs_of, name more groups, or train on fewer "
                "tokens"
            )
    planned_phases = [
        Phase(first, size, tuple(part / sum(row) for part in row))
        for first, size, row in zip(firsts, sizes, parts, strict=False)
    ]
    return planned_phases, [groups[number].name for number in capped]


def shortage_text(
    capped: Sequence[int],
    requested: Sequence[Sequence[float]],
    sizes: Sequence[int],
    groups: Sequence[Group],
    most_epochs: Sequence[float],
    context: int,
) -> str:
    """What to say where groups are asked for more than they have under their caps."""
    sentences = []
    for number in capped:
        group = groups[number]
        need = sum(row[number] * size for row, size in zip(requested, sizes, strict=True)) * context
        passes = f"{need / context / group.windows:.2f} epochs" if group.windows else "it has not one window"
        sentences.append(
            f"{group.name}: {group.tokens:,} tokens are there, {round(need):,} are wanted ({passes}; at most {most_epochs[number]:g})"
        )
    return (
        f"the mix asks for more than the training text has under {SECTION}.max_epochs. {'. '.join(sentences)}. Lower their shares, train "
        f"on fewer tokens, raise {SECTION}.max_epochs or max_epochs_of, or set {SECTION}.shortage to share: the others then take what is "
        "wanting"
    )
