"""The architectures of GGUF files that are read: their tensors' names and their config.json, as transformers has them.

llama.cpp's converter (conversion/llama.py, conversion/qwen.py) is what is undone here. A file with a tensor or a scaling of positions
that it does not know is refused: the model would be another one.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.published.gguf_file import Header
from crawl2llm.training.published.gguf_weights import Weight

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
TURNED = ("llama",)  # the two halves of each head of queries and keys are put in turns by the converter
ROPE_FACTORS = "rope_freqs.weight"  # by what Llama 3's rule divides the frequencies of positions
WHOLE_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
SHAPE_KEYS = {  # in config.json, and in the file behind the architecture's name
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}
# Keys that change what the weights compute, of which nothing here knows.
CHANGING_KEYS = ("attention.sliding_window", "attention.scale", "logit_scale", "expert_count", "rope.scaling.attn_factor",
                 "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_log_multiplier")  # fmt: skip
# Of every Llama 3: the file has no numbers of its rule.
LLAMA3_RULE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def check_architecture(header: Header, label: str) -> None:
    """Raise InputError that begins with `label` for a file whose model is not read here, or lacks a key of its shape."""
    where = f"{label}: {header.path}"
    if header.architecture not in ARCHITECTURES:
        raise InputError(
            f"{where} is of the architecture {header.architecture!r}; allowed: {', '.join(ARCHITECTURES)} (of others name the folder of "
            "safetensors)"
        )
    for key in (*SHAPE_KEYS.values(), "attention.layer_norm_rms_epsilon"):
        if not isinstance(value := header.of_model(key), int | float) or not value > 0:
            raise InputError(f"{where}: {header.architecture}.{key} is {value!r}; a number above 0 is needed")
    if changing := [key for key in CHANGING_KEYS if header.of_model(key)]:
        key = f"{header.architecture}.{changing[0]}"
        raise InputError(f"{where} has {key} {header.keys[key]!r}, which is not read; allowed: none")
    if (parts := header.keys.get("split.count", 1)) > 1:
        raise InputError(f"{where} is one of {parts} parts; allowed: one file (llama.cpp's gguf-split --merge)")
    layers = int(header.of_model("block_count"))
    names = {transformers_name(name, layers) for name in header.tensors}
    unknown = [name for name in header.tensors if name != ROPE_FACTORS and transformers_name(name, layers) is None]
    if unknown:
        raise InputError(f"{where} has a tensor {unknown[0]}, which {header.architecture} does not have here")
    needed = ["model.embed_tokens.weight", "model.norm.weight"]
    needed += [
        f"model.layers.{layer}.{name}.weight"
        for layer in range(layers)
        for short, name in LAYER_NAMES.items()
        if not short.endswith(("_q_norm", "_k_norm")) or header.architecture == "qwen3"
    ]
    if missing := [name for name in needed if name not in names]:
        raise InputError(f"{where} has no tensor of {missing[0]}")
    rope_parameters(header, label)


def transformers_name(name: str, layers: int) -> str | None:
    """What transformers calls a tensor of the file: `blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`; None: not known."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name):
        layer, short, kind = match.groups()
        known = short in LAYER_NAMES and int(layer) < layers
        return f"model.layers.{layer}.{LAYER_NAMES[short]}.{kind}" if known else None
    short, _, kind = name.rpartition(".")
    return f"{WHOLE_NAMES[short]}.weight" if short in WHOLE_NAMES and kind == "weight" else None


def weights_of(header: Header) -> dict[str, Weight]:
    """The model's tensors by the names that transformers has, in the order of the file."""
    layers, turned = int(header.of_model("block_count")), header.architecture in TURNED
    weights = {}
    for name, stored in header.tensors.items():
        if renamed := transformers_name(name, layers):
            of_heads = turned and renamed.rpartition(".")[0].endswith(("q_proj", "k_proj"))
            weights[renamed] = Weight(stored=stored, head=head_size(header) if of_heads else 0)
    return weights


def head_size(header: Header) -> int:
    """The width of a head of queries, in values."""
    width = int(header.of_model("embedding_length")) // int(header.of_model("attention.head_count"))
    return int(header.of_model("attention.key_length") or width)


def model_config(header: Header, tokens: dict[str, Any]) -> dict[str, Any]:
    """config.json. tokens: `bos_token_id` and its like. Raises InputError as `rope_parameters`."""
    weights, architecture = weights_of(header), header.architecture
    config = {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        **{key: int(header.of_model(name)) for key, name in SHAPE_KEYS.items()},
        "num_key_value_heads": int(
            header.of_model("attention.head_count_kv") or header.of_model("attention.head_count")
        ),
        "head_dim": head_size(header),
        "vocab_size": weights["model.embed_tokens.weight"].stored.shape[0],
        "hidden_act": "silu",
        "rms_norm_eps": shortest_decimal(header.of_model("attention.layer_norm_rms_epsilon")),
        "rope_parameters": rope_parameters(header, str(header.path)),
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "dtype": stored_dtype(list(weights.values())),
        "use_cache": True,
        **tokens,
    }
    if architecture != "qwen2":  # whose queries, keys and values always have a bias
        config["attention_bias"] = "model.layers.0.self_attn.q_proj.bias" in weights
    if architecture == "llama":
        config["mlp_bias"] = "model.layers.0.mlp.up_proj.bias" in weights
    return config


def stored_dtype(weights: Sequence[Weight]) -> str:
    """The type of the matrices as they are written: norms have 32 bits in every file."""
    types = {weight.type for weight in weights if len(weight.stored.shape) > 1}
    names = {"F16": "float16", "BF16": "bfloat16"}
    return names.get(types.pop(), "float32") if len(types) == 1 else "float32"


def shortest_decimal(value: float) -> float:
    """The shortest number that is the same in 32 bits: 1e-05 of 9.999999747378752e-06."""
    value32 = struct.pack("<f", value)
    return next(
        number for digits in range(1, 18) if struct.pack("<f", number := float(f"{value:.{digits}g}")) == value32
    )


def rope_parameters(header: Header, label: str) -> dict[str, Any]:
    """`rope_parameters` of config.json.

    Raises InputError that begins with `label` for positions that are scaled in a way that is not read here.
    """
    theta = shortest_decimal(float(header.of_model("rope.freq_base", 10000.0)))
    kind, where = header.of_model("rope.scaling.type", "none"), f"{label}: {header.path}"
    dimensions = header.of_model("rope.dimension_count", head_size(header))
    if dimensions != head_size(header):
        raise InputError(
            f"{where}: {header.architecture}.rope.dimension_count is {dimensions}; allowed: a head's {head_size(header)}"
        )
    if ROPE_FACTORS in header.tensors:
        return {"rope_theta": theta, **llama3_scaling(header, theta, where)}
    if kind == "none":
        return {"rope_theta": theta, "rope_type": "default"}
    factor = header.of_model("rope.scaling.factor")
    if kind == "linear" and factor:
        return {"rope_theta": theta, "rope_type": "linear", "factor": shortest_decimal(factor)}
    original = header.of_model("rope.scaling.original_context_length")
    if kind == "yarn" and factor and original:
        scaling = {"factor": shortest_decimal(factor), "original_max_position_embeddings": int(original)}
        return {"rope_theta": theta, "rope_type": "yarn", **scaling}
    raise InputError(
        f"{where}: {header.architecture}.rope.scaling.type is {kind!r}; allowed: none, linear and yarn with their keys"
    )


def llama3_scaling(header: Header, theta: float, where: str) -> dict[str, Any]:
    """Llama 3's scaling of positions, from the factors that the file has of it (conversion/llama.py).

    Raises InputError if they are none of that rule: the file holds what it gives, not its numbers. where: what an error begins with.
    """
    stored = header.tensors[ROPE_FACTORS]
    with header.path.open("rb") as file:
        file.seek(stored.offset)
        data = file.read(stored.rows * stored.row_bytes)
    factors = struct.unpack(f"<{len(data) // 4}f", data[: len(data) // 4 * 4])
    factor = max(factors, default=1.0)
    low, high, original = LLAMA3_RULE.values()
    expected = []
    for pair in range(head_size(header) // 2):
        turns = original / (2 * math.pi * theta ** (2 * pair / head_size(header)))  # in the first context
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        expected.append(1 / ((1 - smooth) / factor + smooth))
    near = len(factors) == len(expected) and all(
        math.isclose(*pair, rel_tol=1e-4) for pair in zip(factors, expected, strict=True)
    )
    if stored.type != "F32" or not near:
        raise InputError(
            f"{where}: {ROPE_FACTORS} scales positions in a way that is not read; allowed: Llama 3's {LLAMA3_RULE}"
        )
    return {"rope_type": "llama3", "factor": factor, **LLAMA3_RULE}
