"""The steps of the stage tokenize."""

from __future__ import annotations

from functools import partial

from crawl2llm.chain.model_registry import ENCODE_STEP, PUBLISHED_STEP, REENCODE_STEP, has_models_of, published_models
from crawl2llm.chain.step import Config, Step, pick_keys
from crawl2llm.stages.tokenize.ready_checks import content_digest, is_ready
from crawl2llm.stages.tokenize.settings import ReadySettings


def names_its_model(config: Config, task: str) -> list[str]:
    """The published model whose tokenizer a task uses; without a task all."""
    return [task] if task else published_models(config)


def names_ready(config: Config) -> bool:
    """Whether the config names a ready tokenizer."""
    return is_ready(ReadySettings.model_validate(config["tokenize"]["train"]["from"]))


def ready_content(config: Config, task: str) -> Config:
    """What a ready tokenizer is, wherever its files lie."""
    ready = ReadySettings.model_validate(config["tokenize"]["train"]["from"])
    return {"content": content_digest(ready)} if is_ready(ready) else {}


def sample_settings(config: Config, task: str) -> Config:
    """The sample that tokenize.train takes, and how it would cut texts."""
    return pick_keys(config, "tokenize.train", "train_bytes", "seed", "digits", "marks")


STEPS = {
    "tokenize.train": Step(inputs={"corpus": "corpus.write"}, extra_settings=ready_content),
    "tokenize.compare": Step(
        inputs={"tokenizer": "tokenize.train", "corpus": "corpus.write", "languages": "language.score"},
        optional=("languages",),
        is_used=names_ready,
        extra_settings=sample_settings,
    ),
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
