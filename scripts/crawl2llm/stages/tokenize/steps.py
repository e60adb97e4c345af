"""The steps of the stage tokenize."""

from __future__ import annotations

from functools import partial

from crawl2llm.chain.model_registry import ENCODE_STEP, PUBLISHED_STEP, REENCODE_STEP, has_models_of, published_models
from crawl2llm.chain.step import Config, Step


def names_its_model(config: Config, task: str) -> list[str]:
    """The published model whose tokenizer a task uses; without a task all."""
    return [task] if task else published_models(config)


STEPS = {
    "tokenize.train": Step(inputs={"corpus": "corpus.write"}),
    ENCODE_STEP: Step(inputs={"tokenizer": "tokenize.train", "corpus": "corpus.write"}, per="shard"),
    # Once for each tokenizer that comes with a published model.
    REENCODE_STEP: Step(
        inputs={"model": PUBLISHED_STEP, "corpus": "corpus.write"},
        follows=PUBLISHED_STEP,
        per="model",
        is_used=partial(has_models_of, PUBLISHED_STEP),
        tasks=published_models,
    ),
}
