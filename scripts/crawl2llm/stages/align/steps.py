"""The steps of the stage align."""

from __future__ import annotations

from functools import partial

from crawl2llm.chain.model_registry import ALIGN_STEP, BASE_STEP, REWARD_STEP, has_models_of
from crawl2llm.chain.step import Config, Step
from crawl2llm.filters.pair_masking import masking_settings


def aligns(config: Config) -> bool:
    """Whether a model is aligned, or scores answers."""
    return has_models_of(ALIGN_STEP, config) or has_models_of(REWARD_STEP, config)


def answering_models(config: Config, task: str) -> list[str]:
    """The model that `from` names, whose answers become pairs."""
    model = config["align"]["pairs"]["from"]
    return [model] if model else []


STEPS = {
    "align.pairs": Step(
        inputs={"pairs": "finetune.pairs", "index": "decontaminate.index"},
        optional=("index",),
        is_used=aligns,
        extra_settings=masking_settings,
        models_read=answering_models,
        environment="train",
    ),
    REWARD_STEP: Step(
        inputs={"model": BASE_STEP, "pairs": "align.pairs"},
        per="model",
        is_used=partial(has_models_of, REWARD_STEP),
        environment="train",
    ),
    ALIGN_STEP: Step(
        inputs={"model": BASE_STEP, "rewards": REWARD_STEP, "pairs": "align.pairs"},
        optional=("rewards",),
        per="model",
        is_used=partial(has_models_of, ALIGN_STEP),
        environment="train",
    ),
}
