"""The steps of the stage evaluate."""

from __future__ import annotations

from crawl2llm.chain.filter_order import DECONTAMINATE, used_filters
from crawl2llm.chain.model_registry import (
    BASE,
    BASE_STEP,
    ENCODE_STEP,
    ENCODERS,
    LANGUAGE_MODELS,
    evaluated_models,
    is_encoder_for,
    language_models,
    trains_base,
)
from crawl2llm.chain.shared_reference import main_config
from crawl2llm.chain.step import Config, Step, pick_keys


def asks_public_tasks(config: Config) -> bool:
    """Whether public tasks are named."""
    return bool(config["evaluate"]["public"]["presets"])


def searches_training_text(config: Config) -> bool:
    """Whether the run looks for evaluation sets in its text."""
    return DECONTAMINATE in used_filters(config)


def has_curve(config: Config) -> bool:
    """Whether a number of steps says how far apart the points of the curve are."""
    return trains_base(config) and bool(config["evaluate"]["curve"]["every"])


def compares_variants(config: Config) -> bool:
    """Whether variants are compared, by main and all of them."""
    return main_config(config) is not None


def generates(config: Config) -> bool:
    """Whether answers or samples are asked for."""
    return any(config["evaluate"]["generate"][kind] for kind in ("questions", "samples"))


def has_judge(config: Config) -> bool:
    """Whether a judge is named."""
    return config["evaluate"]["judge"]["model"] is not None


def heldout_settings(config: Config, task: str) -> Config:
    """Which held-out text evaluate.model scores."""
    return {"heldout": pick_keys(config, "evaluate.model", "max_tokens", "seed")}


def public_settings(config: Config, task: str) -> Config:
    """Which tasks evaluate.public asks, and where their files are."""
    return pick_keys(config, "evaluate.public", "presets", "data", "hub", "limit", "seed")


def reads_own_tokens(need: str, config: Config, task: str) -> bool:
    """Of the steps that encode the corpus, the one in the run's own tokens, by which held-out text is chosen for every model, and the one
    in the tokens of the model; without a task those of any.
    """
    models = [task] if task else evaluated_models(config)
    return need == ENCODE_STEP or is_encoder_for(models, need, config)


def curve_of_base(config: Config, task: str) -> Config:
    """How far apart the points of the curve are, which `base` alone has."""
    return {"curve": config["evaluate"]["curve"]["every"] if task == BASE else 0}


STEPS = {
    "evaluate.items": Step(
        inputs={"tokens": "tokenize.encode", "tokenizer": "tokenize.train"},
        extra_settings=heldout_settings,
        environment="evaluate",
    ),
    "evaluate.model": Step(
        inputs={
            "model": LANGUAGE_MODELS,
            "pairs": "finetune.pairs",
            "tokens": ENCODERS,
            "heldout": ENCODE_STEP,
            "tasks": "evaluate.items",
        },
        reads=reads_own_tokens,
        per="model",
        tasks=evaluated_models,
        environment="evaluate",
    ),
    "evaluate.stage": Step(
        is_used=asks_public_tasks,
        extra_settings=public_settings,
        extra_paths=("data",),
        files_of="evaluate.public",
        environment="evaluate",
    ),
    "evaluate.public": Step(
        inputs={"model": LANGUAGE_MODELS, "staged": "evaluate.stage"},
        per="model",
        is_used=asks_public_tasks,
        tasks=evaluated_models,
        environment="evaluate",
    ),
    "evaluate.found": Step(
        inputs={"index": "decontaminate.index", "selected": "decontaminate.select", "public": "evaluate.public"},
        optional=("public",),
        is_used=searches_training_text,
        environment="evaluate",
    ),
    "evaluate.curve": Step(
        inputs={"model": BASE_STEP, "tasks": "evaluate.items"}, is_used=has_curve, environment="evaluate"
    ),
    # On main's text and questions, whichever variant it is of.
    "evaluate.common": Step(
        inputs={"model": LANGUAGE_MODELS, "corpus": "corpus.write", "tasks": "evaluate.items"},
        per="model",
        common=("corpus.write", "evaluate.items"),
        is_used=compares_variants,
        extra_settings=curve_of_base,
        tasks=language_models,
        environment="evaluate",
    ),
    "evaluate.generate": Step(
        inputs={"model": LANGUAGE_MODELS, "pairs": "finetune.pairs"},
        per="model",
        is_used=generates,
        tasks=language_models,
        environment="evaluate",
    ),
    "evaluate.judge": Step(
        inputs={"generated": "evaluate.generate"},
        per="model",
        is_used=has_judge,
        tasks=language_models,
        environment="evaluate",
    ),
    "evaluate.compare": Step(
        inputs={
            "evaluations": "evaluate.model",
            "tokens": "tokenize.encode",
            "languages": "language.score",
            "public": "evaluate.public",
            "generated": "evaluate.generate",
            "judged": "evaluate.judge",
        },
        optional=("tokens", "languages", "public", "generated", "judged"),
        environment="evaluate",
    ),
}
