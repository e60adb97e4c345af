"""What a mixture of experts is, by its configuration of transformers: how many experts, how many of a token, and how its routers learn.

Configurations call the same thing by several names, and a type that can be a mixture (doge, gemma4) often is none. The loss by which
routers use all experts alike (Switch Transformer, https://arxiv.org/abs/2101.03961, equations 4 to 6) is transformers' own, where its model
of the type makes one; others it does not balance.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Names of configurations of transformers 5.23. PART_KEYS: a configuration inside of one that has them (dbrx). SWITCH_KEYS: if it is one.
EXPERT_COUNT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
# Experts of a token.
EXPERTS_PER_TOKEN_KEYS = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
)
LOSS_WEIGHT_KEYS = ("router_aux_loss_coef", "aux_loss_coef", "moe_loss_weight")
SWITCH_KEYS = ("is_moe", "enable_moe_block")
PART_KEYS = ("ffn_config",)
LOSS = "load_balancing_loss_func"  # transformers' name of it, in the module of a model that has one
MASK = "attention_mask"  # its argument


@dataclass(frozen=True)
class Mixture:
    """The experts of a layer. weight: how much the loss of the routers counts; None if transformers makes none for this type."""

    number: int
    per_token: int  # experts of a token
    weight: float | None


def mixture_of(config: Any) -> Mixture | None:
    """What a configuration of transformers says of its experts; None if a model of it is no mixture."""
    config = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    places = [config, *(part for name in PART_KEYS if (part := getattr(config, name, None)) is not None)]
    # Some configurations have a switch; where it is off they keep the numbers of experts all the same.
    if any(getattr(config, name, None) is False for name in SWITCH_KEYS):
        return None

    def first_value(names: tuple[str, ...]) -> Any:
        values = (getattr(place, name, None) for place in places for name in names)
        return next((value for value in values if isinstance(value, int | float)), None)

    number = int(first_value(EXPERT_COUNT_KEYS) or 0)
    if number < 2:
        return None
    weight = first_value(LOSS_WEIGHT_KEYS)
    return Mixture(
        number,
        int(first_value(EXPERTS_PER_TOKEN_KEYS) or 1),
        weight if weight is not None and has_router_loss(config) else None,
    )


def has_router_loss(config: Any) -> bool:
    """Whether transformers' language model of this type makes a loss of its routers."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    model_class = getattr(transformers, NAMES.get(config.model_type, ""), None)
    return model_class is not None and hasattr(sys.modules[model_class.__module__], LOSS)


def report_notes(config: Any, bias_rate: float = 0.0) -> list[str]:
    """A note for the report if nothing has the routers of such a model use all experts alike; else none.

    bias_rate: of pretrain.train.router_bias_rate.
    """
    experts = mixture_of(config)
    if experts is None or experts.weight is not None or bias_rate:
        return []
    return [
        f"A model of type {config.model_type!r} is a mixture of {experts.number} experts for which transformers makes no loss of the "
        "routers: nothing keeps them from using few experts only. Types such as mixtral, olmoe and qwen3_moe have one; "
        "pretrain.train.router_bias_rate balances types such as deepseek_v3 and glm4_moe."
    ]


def is_of_experts(name: str, shape: tuple[int, ...], experts: Mixture) -> bool:
    """Whether a parameter holds a matrix of each expert of a layer, or is one expert's own. name, shape: the parameter's."""
    return ".experts." in name or (len(shape) == 3 and shape[0] == experts.number)


@contextlib.contextmanager
def masked_router_loss(model: Any, mask: Any) -> Iterator[None]:
    """A forward pass whose loss of the routers is that of the tokens of `mask` alone, [n, length], 1 or 0; of all without a mask.

    The mask does not go through the model, whose attention would take it for one of its own: rows are padded on their right, where a
    causal model does not look, and packed rows have their own.
    """
    module = next((sys.modules[kind.__module__] for kind in type(model).__mro__ if _makes_loss(kind)), None)
    if mask is None or module is None:
        yield
        return
    function = getattr(module, LOSS)
    names = inspect.signature(function)

    def masked_loss(*args: Any, **more: Any) -> Any:
        bound = names.bind(*args, **more)
        bound.arguments[MASK] = mask
        return function(*bound.args, **bound.kwargs)

    setattr(module, LOSS, masked_loss)
    try:
        yield
    finally:
        setattr(module, LOSS, function)


def _makes_loss(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return module is not None and kind.__module__.startswith("transformers.models.") and hasattr(module, LOSS)
