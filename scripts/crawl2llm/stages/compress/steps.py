"""The steps of the stage compress."""

from __future__ import annotations

from functools import partial

from crawl2llm.chain import model_registry
from crawl2llm.chain.locked_packages import QUANTIZE_LOCK, lock_digest
from crawl2llm.chain.model_registry import (
    BASE_STEP,
    CHILDLESS_STEPS,
    DISTIL_STEP,
    EXPORT_STEP,
    LANGUAGE_MODELS,
    MERGE_STEP,
    QUANTIZE_STEP,
    TEACH_STEP,
    has_models_of,
)
from crawl2llm.chain.step import ALL_VERDICTS, DOCUMENTS, Config, Step


def reads_own_tokens(step: str, need: str, config: Config, task: str) -> bool:
    """Of the steps that encode the corpus, the one in the tokens of the model of a task of `step`; without a task those of any."""
    of_step = (
        model_registry.written_teachers if step == TEACH_STEP else partial(model_registry.models_made_by, step=step)
    )
    models = [task] if task else of_step(config)
    return model_registry.is_encoder_for(models, need, config)


def reads_text_to_calibrate(need: str, config: Config, task: str) -> bool:
    """Text is read where a model's method calibrates on it."""
    is_text = need in model_registry.ENCODERS
    return reads_own_tokens(QUANTIZE_STEP, need, config, task) and (
        not is_text or model_registry.is_calibrated(config, task)
    )


def is_a_teacher_written(config: Config) -> bool:
    """Whether any student reads what its teacher said."""
    return bool(model_registry.written_teachers(config))


def reads_what_is_written(need: str, config: Config, task: str) -> bool:
    """What a teacher said is read where a student's `top_k` asks for it."""
    return reads_own_tokens(DISTIL_STEP, need, config, task) and (
        need != TEACH_STEP or model_registry.reads_written_teacher(config, task)
    )


def quantizing_settings(config: Config, task: str) -> Config:
    """The packages of the tools that calibrate, if one does."""
    return {"tools": lock_digest(QUANTIZE_LOCK)} if model_registry.is_calibrated(config, task) else {}


def card_settings(config: Config, task: str) -> Config:
    """What the card says of sources and languages, and the models that it is made from."""
    return {**model_registry.card_facts(config), "lineage": model_registry.lineage(config, task)}


def models_on_card(config: Config, task: str) -> list[str]:
    """All that an export is made from."""
    return model_registry.lineage(config, task) if task else model_registry.evaluated_models(config)


STEPS = {
    "compress.prune": Step(
        inputs={"model": BASE_STEP, "tokens": model_registry.ENCODERS},
        per="model",
        is_used=partial(has_models_of, "compress.prune"),
        reads=partial(reads_own_tokens, "compress.prune"),
        environment="train",
    ),
    TEACH_STEP: Step(
        inputs={"model": BASE_STEP, "tokens": model_registry.ENCODERS},
        per="model",
        is_used=is_a_teacher_written,
        tasks=model_registry.written_teachers,
        reads=partial(reads_own_tokens, TEACH_STEP),
        environment="train",
    ),
    DISTIL_STEP: Step(
        inputs={"model": BASE_STEP, "teacher": BASE_STEP, "tokens": model_registry.ENCODERS, "taught": TEACH_STEP},
        optional=("taught",),
        per="model",
        is_used=partial(has_models_of, DISTIL_STEP),
        reads=reads_what_is_written,
        environment="train",
    ),
    MERGE_STEP: Step(
        inputs={
            "model": BASE_STEP,
            "others": tuple(step for step in LANGUAGE_MODELS if step not in (*CHILDLESS_STEPS, MERGE_STEP)),
        },
        optional=("others",),
        per="model",
        is_used=partial(has_models_of, MERGE_STEP),
        environment="train",
    ),
    QUANTIZE_STEP: Step(
        inputs={"model": BASE_STEP, "tokens": model_registry.ENCODERS},
        optional=("tokens",),
        per="model",
        is_used=partial(has_models_of, QUANTIZE_STEP),
        reads=reads_text_to_calibrate,
        extra_settings=quantizing_settings,
        environment="evaluate",
    ),
    # Reads everything that its card tells of the run.
    EXPORT_STEP: Step(
        inputs={
            "record": (
                DOCUMENTS,
                ALL_VERDICTS,
                "corpus.split",
                "corpus.write",
                "tokenize.train",
                "finetune.pairs",
                "evaluate.items",
            ),
            "tokens": model_registry.ENCODERS,
            "models": LANGUAGE_MODELS,
            "evaluations": "evaluate.model",
        },
        per="model",
        is_used=partial(has_models_of, EXPORT_STEP),
        reads=partial(reads_own_tokens, EXPORT_STEP),
        extra_settings=card_settings,
        models_read=models_on_card,
        follows="evaluate.compare",
        environment="evaluate",
    ),
}
