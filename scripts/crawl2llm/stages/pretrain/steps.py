"""The steps of the stage pretrain."""

from __future__ import annotations

from crawl2llm.chain import halving
from crawl2llm.chain.config_schema import tracked_section
from crawl2llm.chain.step import Config, Step

TRAINING_PATHS = ("train.start_from",)
TOKENS = ("tokenize.encode", "tokenize.train")
# By `pretrain.mix.by`, what says which group a document is of.
MIXED_BY = {"language": "language.score", "quality": "quality.score", "topic": "topics.score"}


def has_phases(config: Config) -> bool:
    """Whether the config has phases of a mix."""
    return bool(config["pretrain"]["mix"]["phases"])


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


TOKEN_INPUTS = {"tokens": "tokenize.encode", "tokenizer": "tokenize.train"}

STEPS = {
    "pretrain.mix": Step(
        is_used=has_phases,
        reads=reads_one_grouping,
        extra_settings=training_settings,
        extra_paths=TRAINING_PATHS,
        inputs={**TOKEN_INPUTS, "signals": tuple(MIXED_BY.values())},
        optional=("signals",),
    ),
    # What the training will take, from which checkpoint it starts, too.
    "pretrain.plan": Step(
        extra_settings=training_settings,
        extra_paths=TRAINING_PATHS,
        files_of="pretrain.train",
        inputs=TOKEN_INPUTS,
        environment="train",
    ),
    # Where variants are judged while they train (sweep.halving); a task reads those of the rung before.
    "pretrain.rung": Step(
        inputs=TOKEN_INPUTS,
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
        (*TOKENS, "pretrain.mix", "pretrain.halve"),
        inputs={**TOKEN_INPUTS, "mix": "pretrain.mix"},
        optional=("mix",),
        environment="train",
    ),
}
