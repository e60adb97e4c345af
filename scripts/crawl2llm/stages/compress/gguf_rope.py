"""RoPE that llama.cpp's converter leaves out, or that llama.cpp computes otherwise: such an export is refused before the run.

Measured on tiny models of every type (conversion of llama_cpp_python 0.3.36): where nothing is said here the mean difference of a logit was
at most 0.002, elsewhere at least 0.024; compress.export.max_difference refuses from 0.02 on. More tokens and a longer context pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crawl2llm.chain import model_registry

ROPE, OLD_ROPE = "rope_parameters", "rope_scaling"  # of config.json, as it is written and as it was
THETA, DEFAULT_THETA = "rope_theta", 10_000
PLAIN = ("default", "dynamic")  # dynamic changes nothing within the context
TAKEN = (*PLAIN, "linear", "yarn")
LLAMA3_TYPES = ("llama", "mistral", "mixtral")  # conversion/llama.py writes its factors
UNSCALED_TYPES = ("gpt_neox",)  # conversion/gptneox.py writes no key of RoPE, and llama.cpp takes DEFAULT_THETA


def rope_of_root(config: Mapping[str, Any]) -> dict[str, Any]:
    """The RoPE of config.json, also of an older one, with the names that transformers has now."""
    rope = dict(config.get(ROPE) or config.get(OLD_ROPE) or {})
    kind = rope.get("rope_type") or rope.get("type") or "default"
    theta = rope.get(THETA) or config.get(THETA) or config.get("rotary_emb_base") or DEFAULT_THETA
    return {**rope, "rope_type": kind, THETA: theta}


def rope_of_model(config: dict[str, Any], model: str, root_rope: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(the model that says it, the RoPE of a model): its root's, or what pretrain.continue has made of it."""
    step, holder, rope = model_registry.CONTINUE_STEP, model_registry.root(config, model), root_rope
    for name in reversed(model_registry.own_line(config, model)):
        if model_registry.making_task(config, name)[0] == step:
            settings = model_registry.section(config, step, name)
            if settings[ROPE]:
                holder, rope = name, {THETA: rope[THETA], **settings[ROPE]}
    return holder, rope


def rope_problem(kind: str, rope: Mapping[str, Any]) -> str:
    """Why llama.cpp would compute other positions than a model of a type with this RoPE, in words; "" if it does not."""
    rope_type = str(rope.get("rope_type"))
    if kind in UNSCALED_TYPES and (rope_type not in PLAIN or rope[THETA] != DEFAULT_THETA):
        return f"of type {kind} it takes rope_type default and {THETA} {DEFAULT_THETA}, and they are {rope_type} and {rope[THETA]:g}"
    if rope_type == "llama3":
        return (
            ""
            if kind in LLAMA3_TYPES
            else f"it takes rope_type llama3 of {', '.join(LLAMA3_TYPES)}, and the model is {kind}"
        )
    if rope_type not in TAKEN:
        return f"it takes rope_type {', '.join(TAKEN)} and llama3, and it is {rope_type}"
    changes = {
        "attention_factor": rope.get("attention_factor") is not None,
        "truncate": rope.get("truncate") is False,
        "mscale": bool(rope.get("mscale") and rope.get("mscale_all_dim")),
    }
    key = next((key for key, differs in changes.items() if differs and rope_type == "yarn"), "")
    return f"of rope_type yarn it takes no {key}, which is {rope[key]}" if key else ""
