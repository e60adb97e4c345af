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
from crawl2llm.chain.freshness import ABOVE_PREFIX, STALE_PREFIX
from crawl2llm.commands.plan import dryrun
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.core.phrases import join_with_and

INPUT_UPDATED = "Input files updated by another job: "
PARAMS_CHANGED = f"Params have changed since last execution: {STALE_PREFIX}"
NOT_MADE = "not made yet"
SHORT_FORMS = (
    (re.compile(r"Missing output files: .*"), NOT_MADE),
    (re.compile(f"{PARAMS_CHANGED}(.*)"), r"\1"),
    (re.compile(r"Forced execution"), "asked for on the command line"),
)
# report.whatif and report.inspect hold a copy of the select steps' settings: a key is shown as in the config.
COPIED_KEY = re.compile(r"\bselect\.(?=\w+\.select\.)")
# Reasons that differ in no more than this are shown as one, with the first as example.
IGNORED_PART = re.compile(
    rf"(?<={changed_sources.SOURCE_FILES}: ).*|(?<={changed_sources.SOURCE_FILES} in shard ).*|"
    r"/\d+(?=\.)|(?<!\d)\d++ (?=holds |bytes, not \d)(?:bytes, not \d+)?"
)


def short_reason(reason: str, filters: Sequence[str] = tuple(filter_order.FILTERS), step: str = "") -> str:
    """Snakemake's reason for a task in short: what differs of its own, then which steps that it reads run again.

    A task with nothing of its own runs only if one of these comes out otherwise (chain/early_cutoff.py), except of a `step` that
    shows what was done above it. filters: those of the run, in their order.
    """
    own_reasons: list[str] = []
    steps_above: set[str] = set()
    for part in reason.split("; "):
        if part.startswith(INPUT_UPDATED):
            steps_above |= {
                dryrun.variant_and_step(Path(name))[1] for name in part.removeprefix(INPUT_UPDATED).split(", ")
            }
            continue
        words = next((pattern.sub(text, part) for pattern, text in SHORT_FORMS if pattern.match(part)), part)
        words = COPIED_KEY.sub("", words)
        own_reasons += [words] if words not in own_reasons else []
    if NOT_MADE in own_reasons:  # it runs whatever happens above
        return "; ".join(own_reasons)
    if steps_above:  # what these say more plainly
        own_reasons = [
            words
            for words in own_reasons
            if not words.startswith((ABOVE_PREFIX, f"other {changed_sources.SOURCE_FILES}"))
        ]
        steps_to_name = nearest_steps(steps_above, filters)
        several = len(steps_to_name) > 1
        if own_reasons or step in (*ALWAYS_START, *TELLS_ABOVE):
            own_reasons.append(f"needs {join_with_and(steps_to_name)}, which {'run' if several else 'runs'} again")
        else:
            own_reasons.append(
                f"runs, unless {join_with_and(steps_to_name)} {'come' if several else 'comes'} out the same"
            )
    return "; ".join(own_reasons)


def nearest_steps(candidates: set[str], filters: Sequence[str]) -> list[str]:
    """Of these steps, in order, without those that another of them needs: one line has room for what comes last before a task."""

    @cache
    def steps_above(name: str) -> set[str]:
        nearer = steps.resolve_needs(name, filters)
        return {*nearer}.union(*map(steps_above, nearer))

    far = set[str]().union(*map(steps_above, candidates))
    return [name for name in steps.STEPS if name in candidates - far]


def reasons_by_rule(tasks: Iterable[Task], variants: Mapping[str, Any] | None = None) -> dict[str, Counter[str]]:
    """rule → how many tasks for each reason, in the order of the workflow; those that are alike count as one. variants: their configs."""
    reasons_by_kind: dict[str, dict[str, list[str]]] = {}
    order = {step: number for number, step in enumerate(steps.STEPS)}
    for task in sorted(tasks, key=lambda task: order.get(task.step, len(order))):
        config = (variants or {}).get(task.variant)
        filters = filter_order.used_filters(config) if config else tuple(filter_order.FILTERS)
        words = short_reason(task.facts.get("reason", ""), filters, task.step)
        reasons_by_kind.setdefault(task.rule, {}).setdefault(IGNORED_PART.sub("*", words), []).append(words)
    out: dict[str, Counter[str]] = {}
    for rule, kinds in reasons_by_kind.items():
        counts = out.setdefault(rule, Counter())
        for same_reasons in kinds.values():
            other_count = len(set(same_reasons)) - 1
            counts[same_reasons[0] + (f" (and {other_count:,} more like this)" if other_count else "")] += len(
                same_reasons
            )
    return out
