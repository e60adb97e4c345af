"""Settings of trainings as the programs are given them."""

from __future__ import annotations

from typing import Any

from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.training import memory
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.parallel import Degrees
from crawl2llm.training.pretraining_settings import ResolvedModel, TrainSettings


def train_settings(**keys: Any) -> TrainSettings:
    """pretrain.train with these keys."""
    return TrainSettings.model_validate(keys)


def engine_settings(**keys: Any) -> EngineSettings:
    """What an engine reads of pretrain.train with these keys."""
    return EngineSettings.of_pretraining(train_settings(**keys))


def tuning_settings(step: str = "finetune.train", **keys: Any) -> EngineSettings:
    """What an engine reads of another step that trains."""
    return EngineSettings.of_tuning(settings_class(step).model_validate(keys))


def shape_settings(**keys: Any) -> ResolvedModel:
    """pretrain.train.model without `auto`, unchecked."""
    return ResolvedModel.model_construct(**keys)


def placed(**keys: Any) -> memory.Placement:
    """A placement for an estimate, of 8 sequences on one process if the keys say nothing else."""
    keys = {"micro_batch": 8, "processes": 1, "activation_checkpointing": False} | keys
    return memory.Placement(**{**keys, "parallel": Degrees(**keys.get("parallel", {}))})
