"""A published model of any size whose files hold its configuration and the headers of its weights, but no weights: for plans."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from tests.unit.training.tiny_published import tiny_tokenizer

# As their config.json on the hub has them: meta-llama/Llama-3.2-1B and Llama-3.1-8B, Qwen/Qwen3-8B.
SHAPES: dict[str, dict[str, Any]] = {
    "1b": {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128_256, "max_position_embeddings": 131_072, "tie_word_embeddings": True,
    },
    "8b": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 131_072, "tie_word_embeddings": False,
    },
    "qwen3-8b": {
        "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 40_960, "tie_word_embeddings": False,
    },
}  # fmt: skip


def weight_shapes(config: dict[str, Any]) -> dict[str, list[int]]:
    """The shapes of a Llama's weights by name, or of a Qwen3's."""
    hidden, feed, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head = config.get("head_dim", hidden // heads)
    width, kv, table = heads * head, config["num_key_value_heads"] * head, [config["vocab_size"], hidden]
    shapes = {"model.embed_tokens.weight": table, "model.norm.weight": [hidden]}
    shapes |= {} if config["tie_word_embeddings"] else {"lm_head.weight": table}
    parts = {
        "self_attn.q_proj": [width, hidden], "self_attn.k_proj": [kv, hidden], "self_attn.v_proj": [kv, hidden],
        "self_attn.o_proj": [hidden, width], "mlp.gate_proj": [feed, hidden], "mlp.up_proj": [feed, hidden],
        "mlp.down_proj": [hidden, feed], "input_layernorm": [hidden], "post_attention_layernorm": [hidden],
    }  # fmt: skip
    if config["model_type"] == "qwen3":
        parts |= {"self_attn.q_norm": [head], "self_attn.k_norm": [head]}
    return shapes | {
        f"model.layers.{layer}.{name}.weight": shape
        for layer in range(config["num_hidden_layers"])
        for name, shape in parts.items()
    }


def write_headers(folder: Path, name: str, **changes: Any) -> Path:
    """Write the model of SHAPES with changes of its config.json, and a tokenizer; every tensor claims the same two bytes."""
    config = SHAPES[name] | changes
    tiny_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    entries = {
        key: {"dtype": "BF16", "shape": shape, "data_offsets": [0, 2]} for key, shape in weight_shapes(config).items()
    }
    header = json.dumps(entries).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0")
    return folder
