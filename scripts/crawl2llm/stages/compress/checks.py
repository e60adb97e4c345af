"""What of this stage is refused before anything runs, beside what stages/compress/quantize_tools.py refuses."""

from __future__ import annotations

import re
from typing import Any

from crawl2llm.chain import model_registry
from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress.quantize_tools import TYPES
from crawl2llm.training.parameters import FAMILIES

# The linear layers of a decoder layer of TYPES; the test asks transformers.
PARTS = (*(f"self_attn.{part}_proj" for part in "qkvo"), *(f"mlp.{part}_proj" for part in ("gate", "up", "down")))
PRUNE_STEP = "compress.prune"
CHANGED_LOGITS = ("gemma2",)  # types that bound their logits after the head
MOST = 1000  # decoder layers, where their number is not known yet


def linear_layer_names(model: dict[str, Any]) -> list[str]:
    """The names of the linear layers that could be quantized of a model with the settings of pretrain.train.model; [] where not known."""
    if model["type"] not in TYPES:
        return []
    count = model["layers"] if isinstance(model["layers"], int) else MOST
    return [f"model.layers.{number}.{part}" for number in range(count) for part in PARTS]


def check_compression(config: dict[str, Any]) -> None:
    """InputError for a model that a step of this stage cannot make; see `check_pruned`, `check_distilled` and `check_kept`."""
    check_pruned(config)
    check_distilled(config)
    check_kept(config)


def check_pruned(config: dict[str, Any]) -> None:
    """InputError for a method of compress.prune that does not take models of pretrain.train.model.type.

    Of a mixture, whose experts transformers holds in one array a layer, `magnitude` and `2:4` would take attention alone, and say nothing.
    """
    kind = config["pretrain"]["train"]["model"]["type"]
    for name in model_registry.models_made_by(config, PRUNE_STEP):
        method = model_registry.section(config, PRUNE_STEP, name)["method"]
        key = model_registry.key_path(config, PRUNE_STEP, name, "method")
        if method == "structured" and kind not in TYPES:
            raise InputError(
                f"{key} is 'structured', which takes models of pretrain.train.model.type {', '.join(TYPES)}, "
                f"and it is {kind!r}"
            )
        if kind in FAMILIES and FAMILIES[kind].experts:
            raise InputError(
                f"{key} is {method!r}, and pretrain.train.model.type {kind!r}, a mixture of experts, whose matrices are in no linear "
                f"layer: most of its weights would stay as they are; prune a model of another type, such as {', '.join(TYPES)}"
            )


def check_distilled(config: dict[str, Any]) -> None:
    """InputError for models of compress.distil whose logits are not those of their heads, and for a student who would read what
    compress.teach does not write.
    """
    step, teach = model_registry.DISTIL_STEP, config["compress"]["teach"]
    kind = config["pretrain"]["train"]["model"]["type"]
    for name in model_registry.models_made_by(config, step):
        settings = model_registry.section(config, step, name)
        if kind in CHANGED_LOGITS:
            raise InputError(
                f"models.{name}.step is {step!r}, which does not take models of pretrain.train.model.type {kind!r}: they change their "
                "logits after the head"
            )
        if not model_registry.reads_written_teacher(config, name):
            continue
        limited = bool(teach["tokens"])
        same = {"temperature": teach["temperature"], **({"seed": teach["seed"]} if limited else {})}
        most = {"top_k": teach["top_k"], **({"tokens": teach["tokens"]} if limited else {})}
        refused = [
            *(
                (key, f"with top_k only compress.teach.{key}, {value}")
                for key, value in same.items()
                if settings[key] != value
            ),
            *(
                (key, f"with top_k at most compress.teach.{key}, {value}")
                for key, value in most.items()
                if settings[key] > value
            ),
        ]
        for key, allowed in refused:
            path = model_registry.key_path(config, step, name, key)
            raise InputError(f"{path} is {settings[key]}; allowed: {allowed}")


def check_kept(config: dict[str, Any]) -> None:
    """InputError for a `keep` of compress.quantize that is no regular expression, or that no layer is called by.

    Names are known of TYPES, and not of a model that was pruned, which may have fewer layers.
    """
    layer_names = linear_layer_names(config["pretrain"]["train"]["model"])
    for name in model_registry.models_made_by(config, model_registry.QUANTIZE_STEP):
        key = model_registry.key_path(config, model_registry.QUANTIZE_STEP, name, "keep")
        above = model_registry.ancestors(config["models"], name)
        pruned = any(model_registry.making_task(config, parent)[0] == PRUNE_STEP for parent in above)
        for pattern in model_registry.section(config, model_registry.QUANTIZE_STEP, name)["keep"]:
            try:
                expression = re.compile(pattern)
            except re.error as wrong:
                raise InputError(f"{key} has {pattern!r}, which is not a regular expression: {wrong}") from wrong
            if layer_names and not pruned and not any(map(expression.search, layer_names)):
                raise InputError(
                    f"{key} has {pattern!r}, which no linear layer is called by; they are called {', '.join(layer_names[: len(PARTS)])}, …"
                )
