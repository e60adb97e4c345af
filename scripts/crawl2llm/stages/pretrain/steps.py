"""The steps of the stage pretrain."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from crawl2llm.chain import halving, model_registry
from crawl2llm.chain.config_schema import tracked_section
from crawl2llm.chain.model_registry import trains_base
from crawl2llm.chain.step import Config, Step
from crawl2llm.core.settings import AUTO
from crawl2llm.training.published.folder import content_digest
from crawl2llm.training.published.hub_folders import hub_folder

MIX, PACK = "pretrain.mix", "pretrain.pack"
STREAM = "stream"  # a value of pretrain.train.packing: no document is packed
TRAINING_PATHS = ("train.start_from",)
TOKENS = ("tokenize.encode", "tokenize.train")
# By `pretrain.mix.by`, what says which group a document is of.
MIXED_BY = {"language": "language.score", "quality": "quality.score", "topic": "topics.score"}


def has_phases(config: Config) -> bool:
    """Whether the config has phases of a mix."""
    return trains_base(config) and bool(config["pretrain"]["mix"]["phases"])


def packed_trainings(config: Config) -> list[Config]:
    """What decides the windows of the trainings that pack documents, of the contenders of sweep.halving too: each once."""
    contenders = halving.setting_by_contender(config) if halving.is_used(config) else ()
    trainings = [halving.contender_section(config, name) for name in contenders] or [config["pretrain"]["train"]]
    out: list[Config] = []
    for train in trainings:
        context, batch = train["model"]["context"], train["global_batch_tokens"]
        windows = {"context": context, **({"global_batch_tokens": batch} if context == AUTO else {})}
        if train["packing"] != STREAM and windows not in out:
            out.append(windows)
    return out


def packs_stream(config: Config) -> bool:
    """Whether a training packs the documents of the stream; those of a mix pretrain.mix packs."""
    return trains_base(config) and bool(packed_trainings(config)) and not has_phases(config)


def pack_settings(config: Config, task: str) -> Config:
    """What decides the windows of pretrain.pack beside the tokens."""
    return {"trainings": packed_trainings(config)}


def reads_one_grouping(need: str, config: Config, task: str) -> bool:
    """Of what groups documents, that by which they are mixed."""
    return need not in MIXED_BY.values() or need == MIXED_BY.get(config["pretrain"]["mix"]["by"])


def training_settings(config: Config, task: str) -> Config:
    """The settings of pretrain.train."""
    return {"train": tracked_section(config, "pretrain.train")}


def rung_settings(config: Config, task: str) -> Config:
    """The training of its contender, and what decides the judgement before."""
    return halving.rung_settings(task, config) if task else {}


def contender_config(config: Config, task: str) -> Config:
    """The config with the training of its contender as pretrain.train."""
    if not task:
        return config
    train = halving.contender_section(config, halving.parse_task(task)[0])
    return {**config, "pretrain": {**config["pretrain"], "train": train}}


def judging_settings(config: Config, task: str) -> Config:
    """What decides a judgement beside the losses."""
    return halving.judging_settings(config) if halving.is_used(config) else {}


def packs_documents(config: Config, task: str) -> bool:
    """Whether the training of a config, or of its contender, packs documents."""
    return bool(contender_config(config, task)["pretrain"]["train"]["packing"] != STREAM)


def reads_packing(need: str, config: Config, task: str) -> bool:
    """Windows of pretrain.pack only where the training packs documents."""
    return need != PACK or packs_documents(config, task)


def reads_windows(need: str, config: Config, task: str) -> bool:
    """What packs documents, only where it counts them."""
    return need not in (PACK, MIX) or packs_documents(config, task)


def published_source(path: str | None, hub: str | None, revision: str | None) -> Path:
    """Where the files of a published model are. Raises InputError for one of the hub that has not been fetched."""
    return Path(path) if path else hub_folder(hub or "", revision or "")


def source_of_model(config: Config, model: str) -> Path:
    """The same of a model of the registry."""
    keys = model_registry.section(config, model_registry.PUBLISHED_STEP, model)
    return published_source(keys["path"], keys["hub"], keys["revision"])


def published_content(config: Config, task: str) -> Config:
    """What a published model is, wherever its files lie."""
    return {"content": content_digest(source_of_model(config, task))} if task else {}


def reads_own_tokens(need: str, config: Config, task: str) -> bool:
    """Of the steps that encode the corpus, the one in the tokens of the model that a task trains on; without a task those of any."""
    models = [task] if task else model_registry.models_made_by(config, model_registry.CONTINUE_STEP)
    return model_registry.is_encoder_for(models, need, config)


TOKEN_INPUTS = {"tokens": "tokenize.encode", "tokenizer": "tokenize.train"}

STEPS = {
    MIX: Step(
        is_used=has_phases,
        reads=reads_one_grouping,
        extra_settings=training_settings,
        extra_paths=TRAINING_PATHS,
        inputs={**TOKEN_INPUTS, "signals": tuple(MIXED_BY.values())},
        optional=("signals",),
    ),
    PACK: Step(inputs={"tokens": "tokenize.encode"}, is_used=packs_stream, extra_settings=pack_settings),
    # What the training will take, from which checkpoint it starts, too.
    "pretrain.plan": Step(
        is_used=trains_base,
        reads=reads_windows,
        extra_settings=training_settings,
        extra_paths=TRAINING_PATHS,
        files_of="pretrain.train",
        inputs={**TOKEN_INPUTS, "packs": (PACK, MIX)},
        optional=("packs",),
        environment="train",
    ),
    # Where variants are judged while they train (sweep.halving); a task reads those of the rung before.
    "pretrain.rung": Step(
        inputs={**TOKEN_INPUTS, "packs": PACK},
        optional=("packs",),
        reads=reads_packing,
        per="contender",
        is_used=halving.is_used,
        extra_settings=rung_settings,
        extra_paths=TRAINING_PATHS,
        tasks=halving.rung_tasks,
        files_of="pretrain.train",
        files_config=contender_config,
        environment="train",
    ),
    "pretrain.halve": Step(inputs={"rungs": "pretrain.rung"}, is_used=halving.is_used, extra_settings=judging_settings),
    "pretrain.train": Step(
        (*TOKENS, MIX, "pretrain.halve"),
        is_used=trains_base,
        inputs={**TOKEN_INPUTS, "mix": MIX, "packs": PACK},
        optional=("mix", "packs"),
        reads=reads_packing,
        environment="train",
    ),
    model_registry.PUBLISHED_STEP: Step(
        per="model",
        is_used=partial(model_registry.has_models_of, model_registry.PUBLISHED_STEP),
        extra_settings=published_content,
        environment="train",
    ),
    model_registry.CONTINUE_STEP: Step(
        inputs={"model": model_registry.BASE_STEP, "tokens": model_registry.ENCODERS},
        per="model",
        is_used=partial(model_registry.has_models_of, model_registry.CONTINUE_STEP),
        reads=reads_own_tokens,
        environment="train",
    ),
}
