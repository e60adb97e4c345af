"""The steps of the stage finetune."""

from __future__ import annotations

from crawl2llm.chain.model_registry import models_made_by
from crawl2llm.chain.step import Config, Step
from crawl2llm.filters.pair_masking import masking_settings


def pair_settings(config: Config, task: str) -> Config:
    """What is masked and searched for, and `trains` where no model is trained on pairs."""
    trains = {} if models_made_by(config, "finetune.train") else {"trains": False}
    return {**masking_settings(config, task), **trains}


STEPS = {
    "finetune.pairs": Step(
        inputs={"corpus": "corpus.write", "index": "decontaminate.index"},
        optional=("index",),
        extra_settings=pair_settings,
        environment="train",
    ),
    "finetune.train": Step(
        inputs={"model": "pretrain.train", "pairs": "finetune.pairs"}, per="model", environment="train"
    ),
}
