"""Builds models of pretrain.train.model, and looks whether they are causal: what the plan asks, in a process of its own.

    python -m crawl2llm.training.causality < asks.json > answers.json

asks: a list of what training/model_check.py asks; answers: for each what is wrong with it, "" if nothing is.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from crawl2llm.core.errors import InputError
from crawl2llm.training import initial, model, parallel, routers
from crawl2llm.training.pretraining_settings import ResolvedModel

SECTION = "pretrain.train.model"
LENGTH, PLACE = 12, 8  # tokens of a text, and the one that is changed
# How far logits before it may move, by the largest of all: the rounding of fp32, where a mixture groups tokens otherwise.
ROUNDING = 1e-4
MOST_PARAMETERS = 200_000_000  # parameters of a model that is run
SHAPE = {"hidden_size": 64, "layers": 2, "heads": 4, "kv_heads": 4, "intermediate_size": 64, "context": 64}
# What makes models of types small that have such keys.
SMALL_SIZES = {
    "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2, "moe_topk": 2,
    "top_k_experts": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip


def sees_later_tokens(language_model: Any) -> bool | None:
    """Whether logits before a token move if that token is changed: no causal model's do. None if the model gives no numbers."""
    torch.manual_seed(0)
    texts = torch.randint(1, 60, (1, LENGTH)).repeat(2, 1)
    texts[1, PLACE] = texts[0, PLACE] % 59 + 1
    with torch.no_grad():
        first = language_model.eval()(input_ids=texts[:1]).logits[0]
        second = language_model(input_ids=texts[1:]).logits[0]
    if not bool(first.isfinite().all() and second.isfinite().all()):
        return None
    change = (first - second).abs().amax(-1) / first.abs().max().clamp(min=1e-9)
    return bool(change[:PLACE].max() > ROUNDING)


def tiny_model(settings: ResolvedModel) -> Any:
    """A tiny model with random weights of the same type, and of those overrides that are no sizes. Raises what transformers raises."""
    kind, keys = settings.type, ("intermediate_size", "kv_heads")
    shape = {key: value for key, value in SHAPE.items() if key not in keys or getattr(settings, key) is not None}
    overrides = {
        key: value
        for key, value in settings.overrides.items()
        if isinstance(value, bool | str) or key.endswith("token_id")
    }
    default_config = model.AutoConfig.for_model(kind)
    small = {key: value for key, value in SMALL_SIZES.items() if isinstance(getattr(default_config, key, None), int)}
    config = model.build_config(
        settings.model_copy(update={**shape, "overrides": {**small, **overrides}}), 64, 0, set(SHAPE)
    )
    if sum(value.numel() for value in initial.empty_model(config).parameters()) > MOST_PARAMETERS:
        raise InputError(f"a model of type {kind!r} is not tiny")
    torch.manual_seed(0)
    return initial.empty_model(config, "cpu")


def model_problem(ask: dict[str, Any]) -> str:
    """What is wrong with a model; "" if nothing is known to be."""
    settings = ResolvedModel.model_validate(ask["model"])
    kind = settings.type
    try:
        config = model.build_config(settings, ask["vocabulary"], 0, ask["auto"])
        if ask["parallel"]:
            parallel.check_model(parallel.Degrees(**ask["parallel"]), config, settings.context, ask["accumulation"])
        routers.check_routers(initial.empty_model(config), *ask["routers"])
    except InputError as error:
        return str(error)
    except Exception as error:  # of any of the hundreds of types of transformers
        message = str(error).strip().partition("\n")[0] or type(error).__name__
        return f"{SECTION}: transformers builds no model of type {kind!r} with these keys: {message}"
    try:
        small = tiny_model(settings)
    except Exception:  # a type whose sizes depend on each other in a way that is not known here
        return ""
    try:
        sees_later = sees_later_tokens(small)
    except Exception:  # its sizes may not fit
        return run_problem(config, kind)
    if sees_later:
        return (
            f"{SECTION}.type is {kind!r}, whose models see the tokens that they are to predict: a changed token moves the logits before "
            "it, so its loss would mean nothing; take a causal type, such as llama, qwen3 or gpt2"
        )
    return ""


def run_problem(config: Any, kind: str) -> str:
    """What is wrong with a model that takes no text alone, by its own sizes and without weights; "" if nothing is known to be."""
    try:
        initial.empty_model(config)(input_ids=torch.zeros(1, LENGTH, dtype=torch.int64, device="meta"))
    except TypeError as error:
        message = str(error).strip().partition("\n")[0]
        return (
            f"{SECTION}.type is {kind!r}, whose models do not run with these keys on text alone: {message}; take another type, such as "
            "llama, qwen3 or gpt2"
        )
    except Exception:  # the meta device cannot do it all
        return ""
    return ""


def main() -> int:
    asks = json.load(sys.stdin)
    torch.set_num_threads(1)
    json.dump([model_problem(ask) for ask in asks], sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
