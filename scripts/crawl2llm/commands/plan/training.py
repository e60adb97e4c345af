"""What the pre-training of a plan takes, as pretrain.plan will say: by the tokens counted, before that as far as the config tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain.steps import PLAN
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import Work
from crawl2llm.commands.plan.last_run import Last
from crawl2llm.commands.plan.reasons import listed
from crawl2llm.core.errors import InputError
from crawl2llm.stages.pretrain.plan import facts
from crawl2llm.training import cost_estimate, gpus, resource_plan

NAMED = 3  # variants that a heading names
TRAIN, TOKENS, TOKENIZER = "pretrain.train", "tokenize.encode", "tokenize.train"


def counted(last: Last, variant: str) -> tuple[int | None, int | None]:
    """(training tokens, entries of the tokenizer) that the last run left; None for what it did not."""
    shards, made = last.manifests(variant, TOKENS).values(), last.manifests(variant, TOKENIZER).get("")
    tokens = sum(shard.summary.get("train", {}).get("tokens", 0) for shard in shards)
    return tokens or None, made.summary.get("vocabulary") if made else None


def summary(config: dict[str, Any], tokens: int | None, entries: int | None) -> dict[str, Any]:
    """The summary of pretrain.plan under a complete config; InputError as in `foreseen`."""
    wanted = config["tokenize"]["train"]["vocabulary"]
    vocabulary = entries or (wanted if isinstance(wanted, int) else None)
    if vocabulary is None:
        raise InputError("tokenize.train.vocabulary is auto: known after tokenize")
    return facts(config["pretrain"]["train"], tokens, vocabulary)


def foreseen(
    config: dict[str, Any], tokens: int | None, entries: int | None, folder: Path, profile_gpu: str = "", **more: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(summary, placement) of pretrain.plan under a complete config. folder: of the last training's results.

    more: see `resource_plan.place`. Raises InputError where what is needed is known after tokenize.encode alone, and for settings that
    cannot work.
    """
    found, train = summary(config, tokens, entries), config["pretrain"]["train"]
    return found, resource_plan.place(
        found, train, config["pretrain"]["plan"], profile_gpu, cost_estimate.measured(folder), **more
    )


def lines(tasks: list[Task], work: Work) -> Iterator[str]:
    """Lines for people on every pre-training, or plan of one, among the tasks of a plan; of several variants that need the same once."""
    planned = {task.variant for task in tasks if task.step in (TRAIN, PLAN)}
    ordered = [*(name for name in work.variants if name in planned), *sorted(planned - work.variants.keys())]
    found: dict[tuple[str, ...], list[str]] = {}
    for variant in ordered:
        if said := tuple(_lines(tasks, work, variant)):
            found.setdefault(said, []).append(variant)
    for (first, *rest), variants in found.items():
        yield f"{heading(variants)}{first}"
        yield from (f"  {line}" for line in rest)


def heading(variants: list[str]) -> str:
    """`pretrain.train` of main alone, `pretrain.train of a`, `pretrain.train of main, a, b and 7 more`."""
    if variants == ["main"]:
        return TRAIN
    more = len(variants) - NAMED
    names = listed(variants) if more <= 0 else f"{', '.join(variants[:NAMED])} and {more:,} more"
    return f"{TRAIN} of {names}"


def _lines(tasks: list[Task], work: Work, variant: str) -> Iterator[str]:
    """What follows the heading, for one variant."""
    config = work.variants.get(variant)
    if config is None:
        return
    owner = work.holder(variant, TOKENS)
    before = work.last.before(owner, TOKENS)
    tokens, entries = counted(work.last, before)
    again = (owner, TOKENS) in work.planned
    if tokens and again:
        tokens = round(tokens * work.scale(owner, TOKENS))
    if (work.holder(variant, TOKENIZER), TOKENIZER) in work.planned and isinstance(
        config["tokenize"]["train"]["vocabulary"], int
    ):
        entries = None
    resources = next((task.facts.get("resources", "") for task in tasks if task.step == TRAIN), "")
    asked = re.search(r"\bgres=(\S+)", resources)
    why = " (an estimate: tokenize.encode has not counted the tokens yet)" if again or not tokens else ""
    try:
        folder = work.last.folder / "results" / variant / "pretrain" / "train"
        found, place = foreseen(config, tokens, entries, folder, gpus.of_profile(asked[1].rstrip(",") if asked else ""))
        train = next((task for task in tasks if task.step == TRAIN and task.variant == variant), None)
        if (
            train and "hours" in place and (seconds := work.seconds(train)) is not None
        ):  # the table's figure, and no other
            engine = cost_estimate.by_last(cost_estimate.measured(folder) or {}, config["pretrain"]["train"])
            place |= cost_estimate.cost(
                seconds / 3600, place["processes"] if place["gpu"] else 0, config["pretrain"]["plan"]
            )
            place["basis"] = f"the table above: {engine}, scaled by operations, start and end included"
        said = resource_plan.lines(found, place)
    except InputError as error:
        yield f": what it takes is not known yet: {error}"
        return
    yield f"{why}: {said[0]}"
    yield from said[1:]
