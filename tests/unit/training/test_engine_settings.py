"""What an engine reads of the settings of any step that trains."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace

import pytest

from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.pretraining_settings import TrainSettings

STEPS = ("pretrain.continue", "finetune.train", "align.reward", "align.train", "compress.prune", "compress.distil")
# Of a tuning alone; and a rate that ends at 0 where there is no key for it.
OTHERS = {"min_learning_rate_ratio", "hidden_size", "pretraining"}


def test_what_a_step_has_no_key_for_is_the_default_of_pretraining() -> None:
    keys, tuning = TrainSettings.model_fields, settings_class("finetune.train").model_fields
    for field in fields(EngineSettings):
        if field.default is not MISSING and field.name not in OTHERS:
            declared = (keys if field.name in keys else tuning)[field.name].default
            assert field.default == (tuple(declared) if isinstance(declared, list) else declared), field.name
    assert EngineSettings.of_tuning(settings_class("finetune.train")()).min_learning_rate_ratio == 0


@pytest.mark.parametrize("step", STEPS)
def test_it_has_the_values_of_the_step(step: str) -> None:
    made = EngineSettings.of_tuning(settings_class(step).model_validate({"learning_rate": 0.5, "zero_stage": 2}))
    assert (made.learning_rate, made.zero_stage, made.optimizer, made.ema) == (0.5, 2, "adamw", None)


def test_of_pretraining_it_knows_the_whole() -> None:
    train = TrainSettings.model_validate({"base_width": 64, "model": {"hidden_size": 128}, "ema": 0.9})
    made = EngineSettings.of_pretraining(train)
    assert (made.hidden_size, made.base_width, made.ema, made.pretraining) == (128, 64, 0.9, train)
    assert replace(made, ema=None).pretraining is train
