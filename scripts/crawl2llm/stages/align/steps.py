"""The steps of the stage align."""

from __future__ import annotations

from functools import partial

from crawl2llm.chain.model_registry import ALIGN_STEP, REWARD_STEP, has_models_of
from crawl2llm.chain.pair_masking import masking_settings
from crawl2llm.chain.step import Config, Step


def aligns(config: Config) -> bool:
    """Whether a model is aligned, or scores answers."""
    return has_models_of(ALIGN_STEP, config) or has_models_of(REWARD_STEP, config)


def answering_models(config: Config, task: str) -> list[str]:
    """The model that `from` names, whose answers become pairs."""
    model = config["align"]["pairs"]["from"]
    return [model] if model else []


STEPS = {
    "align.pairs": Step(
        ("finetune.pairs", "decontaminate.index"),
        is_used=aligns,
        extra_settings=masking_settings,
        models_read=answering_models,
        environment="train",
    ),
    REWARD_STEP: Step(
        ("pretrain.train", "align.pairs"), per="model", is_used=partial(has_models_of, REWARD_STEP), environment="train"
    ),
    ALIGN_STEP: Step(
        ("pretrain.train", REWARD_STEP, "align.pairs"),
        per="model",
        is_used=partial(has_models_of, ALIGN_STEP),
        environment="train",
    ),
}
