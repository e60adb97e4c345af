"""What the pre-training of a plan takes, as pretrain.plan will say: by the tokens counted, before that as far as the config tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawl2llm.chain.steps import PLAN
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import Work
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.core.errors import InputError
from crawl2llm.core.phrases import and_more, join_with_and
from crawl2llm.stages.pretrain.plan import UncountedError, training_facts
from crawl2llm.stages.tokenize.ready_checks import with_known_vocabulary
from crawl2llm.training import cost_estimate, resource_plan
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings

MOST_VARIANTS = 3  # variants that a heading names
TRAIN, TOKENS, TOKENIZER = "pretrain.train", "tokenize.encode", "tokenize.train"


def tokens_and_vocabulary(last: LastRun, variant: str) -> tuple[int | None, int | None]:
    """(training tokens, entries of the tokenizer) that the last run left; None for what it did not."""
    shards, tokenizer = last.manifests(variant, TOKENS).values(), last.manifests(variant, TOKENIZER).get("")
    tokens = sum(shard.summary.get("train", {}).get("tokens", 0) for shard in shards)
    return tokens or None, tokenizer.summary.get("vocabulary") if tokenizer else None


def plan_summary(config: dict[str, Any], tokens: int | None, entries: int | None) -> dict[str, Any]:
    """The summary of pretrain.plan under a complete config; InputError as in `summary_and_placement`."""
    vocabulary_setting = with_known_vocabulary(config)["tokenize"]["train"]["vocabulary"]
    vocabulary = entries or (vocabulary_setting if isinstance(vocabulary_setting, int) else None)
    if vocabulary is None:
        raise UncountedError("tokenize.train.vocabulary is auto: known after tokenize")
    return training_facts(TrainSettings.model_validate(config["pretrain"]["train"]), tokens, vocabulary)


def summary_and_placement(
    config: dict[str, Any], tokens: int | None, entries: int | None, folder: Path, profile_gpu: str = "", **more: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(summary, placement) of pretrain.plan under a complete config. folder: of the last training's results.

    more: see `resource_plan.plan_resources`. Raises InputError if what is needed is known after tokenize.encode alone, and for settings
    that cannot work.
    """
    plan_facts = plan_summary(config, tokens, entries)
    train = TrainSettings.model_validate(config["pretrain"]["train"])
    plan_settings = PlanSettings.model_validate(config["pretrain"]["plan"])
    predicted = cost_estimate.read_prediction(folder.with_name("plan"))
    return plan_facts, resource_plan.plan_resources(
        plan_facts,
        train,
        plan_settings,
        profile_gpu,
        cost_estimate.read_last_training(folder),
        predicted=predicted,
        **more,
    )


def training_lines(tasks: list[Task], work: Work) -> Iterator[str]:
    """Lines for people on every pre-training, or plan of one, among the tasks of a plan; of several variants that need the same once."""
    planned = {task.variant for task in tasks if task.step in (TRAIN, PLAN)}
    ordered = [*(name for name in work.variants if name in planned), *sorted(planned - work.variants.keys())]
    variants_by_text: dict[tuple[str, ...], list[str]] = {}
    for variant in ordered:
        if texts := tuple(_variant_lines(tasks, work, variant)):
            variants_by_text.setdefault(texts, []).append(variant)
    for (first, *rest), variants in variants_by_text.items():
        yield f"{training_heading(variants)}{first}"
        yield from (f"  {line}" for line in rest)


def training_heading(variants: list[str]) -> str:
    """`pretrain.train` of main alone, `pretrain.train of a`, `pretrain.train of main, a, b and 7 more`."""
    if variants == ["main"]:
        return TRAIN
    few = len(variants) <= MOST_VARIANTS
    return f"{TRAIN} of {join_with_and(variants) if few else and_more(variants, MOST_VARIANTS)}"


def _variant_lines(tasks: list[Task], work: Work, variant: str) -> Iterator[str]:
    """What follows the heading, for one variant."""
    config = work.variants.get(variant)
    if config is None:
        return
    owner = work.owning_variant(variant, TOKENS)
    measured_variant = work.last.measured_variant(owner, TOKENS)
    tokens, entries = tokens_and_vocabulary(work.last, measured_variant)
    is_planned = (owner, TOKENS) in work.tasks_by_place
    if tokens and is_planned:
        tokens = round(tokens * work.work_ratio(owner, TOKENS))
    if (work.owning_variant(variant, TOKENIZER), TOKENIZER) in work.tasks_by_place and isinstance(
        config["tokenize"]["train"]["vocabulary"], int
    ):
        entries = None
    profile_gpu = next((task.profile_gpu for task in tasks if task.step == TRAIN), "")
    note = " (an estimate: tokenize.encode has not counted the tokens yet)" if is_planned or not tokens else ""
    try:
        folder = work.last.folder / "results" / variant / "pretrain" / "train"
        plan_facts, place = summary_and_placement(config, tokens, entries, folder, profile_gpu)
        train = next((task for task in tasks if task.step == TRAIN and task.variant == variant), None)
        if (
            train and "hours" in place and (seconds := work.seconds(train)) is not None
        ):  # the table's figure, and no other
            engine = cost_estimate.last_training_basis(
                cost_estimate.read_last_training(folder) or {}, config["pretrain"]["train"]["engine"]
            )
            place |= cost_estimate.price_hours(
                seconds / 3600,
                place["processes"] if place["gpu"] else 0,
                PlanSettings.model_validate(config["pretrain"]["plan"]),
            )
            place["basis"] = f"the table above: {engine}, scaled by operations, start and end included"
        plan_lines = resource_plan.plan_lines(plan_facts, place)
    except InputError as error:
        yield f": what it takes is not known yet: {error}"
        return
    yield f"{note}: {plan_lines[0]}"
    yield from plan_lines[1:]
