"""What of compress.prune and compress.quantize is refused before anything runs, beside what stages/compress/quantize_tools.py refuses."""

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
MOST = 1000  # decoder layers, where their number is not known yet


def linear_layer_names(model: dict[str, Any]) -> list[str]:
    """The names of the linear layers that could be quantized of a model with the settings of pretrain.train.model; [] where not known."""
    if model["type"] not in TYPES:
        return []
    count = model["layers"] if isinstance(model["layers"], int) else MOST
    return [f"model.layers.{number}.{part}" for number in range(count) for part in PARTS]


def check_compression(config: dict[str, Any]) -> None:
    """InputError for a model that compress.prune or compress.quantize cannot make; see `check_pruned` and `check_kept`."""
    check_pruned(config)
    check_kept(config)


def check_pruned(config: dict[str, Any]) -> None:
    """InputError for a method of compress.prune that does not take models of pretrain.train.model.type.

    Of a mixture, whose experts transformers holds in one array a layer, `magnitude` and `2:4` would take attention alone, and say nothing.
    """
    kind = config["pretrain"]["train"]["model"]["type"]
    for name in model_registry.models_from_base(config, PRUNE_STEP):
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


def check_kept(config: dict[str, Any]) -> None:
    """InputError for a `keep` of compress.quantize that is no regular expression, or that no layer is called by.

    Names are known of TYPES, and not of a model that was pruned, which may have fewer layers, nor of a published one.
    """
    layer_names = linear_layer_names(config["pretrain"]["train"]["model"])
    for name in model_registry.models_made_by(config, model_registry.QUANTIZE_STEP):
        key = model_registry.key_path(config, model_registry.QUANTIZE_STEP, name, "keep")
        above = model_registry.ancestors(config["models"], name)
        other_layers = model_registry.is_from_published(config, name) or PRUNE_STEP in (
            model_registry.making_task(config, parent)[0] for parent in above
        )
        for pattern in model_registry.section(config, model_registry.QUANTIZE_STEP, name)["keep"]:
            try:
                expression = re.compile(pattern)
            except re.error as wrong:
                raise InputError(f"{key} has {pattern!r}, which is not a regular expression: {wrong}") from wrong
            if layer_names and not other_layers and not any(map(expression.search, layer_names)):
                raise InputError(
                    f"{key} has {pattern!r}, which no linear layer is called by; they are called {', '.join(layer_names[: len(PARTS)])}, …"
                )
