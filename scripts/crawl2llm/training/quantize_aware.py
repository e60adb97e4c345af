"""Whether a fine-tuning rounds the weights as compress.quantize will (`quantize_aware`), and whether it can with its other settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.core.errors import InputError
from crawl2llm.training.engine_settings import EngineSettings

STEP = "finetune.train"
TRANSPOSED_TYPES = ("gpt2",)  # types of models whose linear layers are not torch.nn.Linear, which alone are rounded
ENGINES = ("torch",)  # that quantize_aware was tried with


def is_quantize_aware(settings: EngineSettings) -> bool:
    """Whether the weights are rounded in the forward pass (training/rounding.py)."""
    return bool(settings.quantize_aware != "none")


def check_quantize_aware(settings: EngineSettings, key: Callable[[str], str], kind: str = "") -> None:
    """InputError if weights are to be rounded of an adapter's model, of a type whose layers cannot be, by another engine, or in the
    shards of ZeRO.

    key: a key of finetune.train as the config names it. kind: pretrain.train.model.type, if it is known.
    """
    if not is_quantize_aware(settings):
        return
    setting_text = f"{key('quantize_aware')} is {settings.quantize_aware}"
    if kind in TRANSPOSED_TYPES:
        raise InputError(
            f"{setting_text}, and pretrain.train.model.type {kind}, whose linear layers hold their weights the other way round and cannot "
            f"be rounded in training: set {key('quantize_aware')} to none"
        )
    if settings.adapter != "none":
        raise InputError(
            f"{setting_text}, and {key('adapter')} {settings.adapter}: weights beside an adapter are not trained, so rounding would "
            f"teach them nothing; set {key('adapter')} or {key('quantize_aware')} to none"
        )
    if settings.engine not in ENGINES:
        raise InputError(
            f"{setting_text}, and {key('engine')} {settings.engine}, which was not tried with rounded weights: set {key('engine')} to "
            f"{' or '.join(ENGINES)}"
        )
    if settings.zero_stage:
        raise InputError(
            f"{setting_text}, and {key('zero_stage')} {settings.zero_stage}, whose gathered weights may be bf16, which has another "
            f"grid: set {key('zero_stage')} to 0"
        )


def check_config(config: dict[str, Any]) -> None:
    """`check_quantize_aware` of every model of finetune.train of a config: before a run."""
    from crawl2llm.chain.settings_registry import settings_class

    for name in model_registry.models_made_by(config, STEP):
        check_quantize_aware(
            EngineSettings.of_tuning(settings_class(STEP).model_validate(model_registry.section(config, STEP, name))),
            partial(model_registry.key_path, config, STEP, name),
            "" if model_registry.is_from_published(config, name) else config["pretrain"]["train"]["model"]["type"],
        )
