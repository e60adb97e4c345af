"""Why each task of a plan would run, in short: what Snakemake says of it, for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from crawl2llm.chain import changed_sources, filter_order, steps
from crawl2llm.chain.early_cutoff import ALWAYS_START, TELLS_ABOVE
from crawl2llm.chain.freshness import ABOVE, WORDS
from crawl2llm.commands.plan import dryrun
from crawl2llm.commands.plan.dryrun import Task

AGAIN = "Input files updated by another job: "
CHANGED = f"Params have changed since last execution: {WORDS}"
MISSING = "not made yet"
SHORTER = (
    (re.compile(r"Missing output files: .*"), MISSING),
    (re.compile(f"{CHANGED}(.*)"), r"\1"),
    (re.compile(r"Forced execution"), "asked for on the command line"),
)
# report.whatif and report.inspect hold a copy of the select steps' settings: a key is shown as in the config.
COPIED = re.compile(r"\bselect\.(?=\w+\.select\.)")
# Reasons that differ in no more than this are shown as one, with the first as example.
ALIKE = re.compile(
    rf"(?<={changed_sources.WORDS}: ).*|(?<={changed_sources.WORDS} in shard ).*|"
    r"/\d+(?=\.)|(?<!\d)\d++ (?=holds |bytes, not \d)(?:bytes, not \d+)?"
)


def why(reason: str, filters: Sequence[str] = tuple(filter_order.FILTERS), step: str = "") -> str:
    """Snakemake's reason for a task in short: what differs of its own, then which steps that it reads run again.

    A task with nothing of its own runs only if one of these comes out otherwise (chain/early_cutoff.py), except of a `step` that
    shows what was done above it. filters: those of the run, in their order.
    """
    own: list[str] = []
    above: set[str] = set()
    for part in reason.split("; "):
        if part.startswith(AGAIN):
            above |= {dryrun.folders(Path(name))[1] for name in part.removeprefix(AGAIN).split(", ")}
            continue
        words = next((pattern.sub(text, part) for pattern, text in SHORTER if pattern.match(part)), part)
        words = COPIED.sub("", words)
        own += [words] if words not in own else []
    if MISSING in own:  # it runs whatever happens above
        return "; ".join(own)
    if above:  # what these say more plainly
        own = [words for words in own if not words.startswith((ABOVE, f"other {changed_sources.WORDS}"))]
        named = nearest(above, filters)
        several = len(named) > 1
        if own or step in (*ALWAYS_START, *TELLS_ABOVE):
            own.append(f"needs {listed(named)}, which {'run' if several else 'runs'} again")
        else:
            own.append(f"runs, unless {listed(named)} {'come' if several else 'comes'} out the same")
    return "; ".join(own)


def nearest(found: set[str], filters: Sequence[str]) -> list[str]:
    """Of these steps, in order, without those that another of them needs: one line has room for what comes last before a task."""

    @cache
    def above(name: str) -> set[str]:
        nearer = steps.resolved(name, filters)
        return {*nearer}.union(*map(above, nearer))

    far = set[str]().union(*map(above, found))
    return [name for name in steps.STEPS if name in found - far]


def listed(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def reasons(tasks: Iterable[Task], variants: Mapping[str, Any] | None = None) -> dict[str, Counter[str]]:
    """rule → how many tasks for each reason, in the order of the workflow; those that are alike count as one. variants: their configs."""
    found: dict[str, dict[str, list[str]]] = {}
    order = {step: number for number, step in enumerate(steps.STEPS)}
    for task in sorted(tasks, key=lambda task: order.get(task.step, len(order))):
        config = (variants or {}).get(task.variant)
        filters = filter_order.filters(config) if config else tuple(filter_order.FILTERS)
        words = why(task.facts.get("reason", ""), filters, task.step)
        found.setdefault(task.rule, {}).setdefault(ALIKE.sub("*", words), []).append(words)
    out: dict[str, Counter[str]] = {}
    for rule, kinds in found.items():
        counts = out.setdefault(rule, Counter())
        for held in kinds.values():
            others = len(set(held)) - 1
            counts[held[0] + (f" (and {others:,} more like this)" if others else "")] += len(held)
    return out
