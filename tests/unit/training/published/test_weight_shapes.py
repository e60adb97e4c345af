"""Weights that are not those of their config.json are refused by headers alone; those of every type that transformers writes are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from crawl2llm.core.errors import InputError
from crawl2llm.training import initial
from crawl2llm.training.published.checks import check_published
from crawl2llm.training.published.sizes import read_sizes
from crawl2llm.training.published.weight_shapes import GPT2, gpt2_shapes, llama_shapes, weight_problem
from crawl2llm.training.quantized_sizes import LLAMA_LIKE
from tests.unit.training.header_published import write_headers

SMALL = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip
OTHERS = (
    "gemma2",
    "gpt_neox",
    "bloom",
    "mixtral",
    "olmoe",
    "phi",
    "opt",
    "falcon",
    "mamba",
    "qwen3_moe",
    "olmo2",
)


@pytest.mark.parametrize(
    "more", [{}, {"head_dim": 8, "attention_bias": True, "mlp_bias": True}, {"tie_word_embeddings": True}]
)
@pytest.mark.parametrize("kind", [*LLAMA_LIKE, GPT2])
def test_the_weights_are_those_of_transformers(tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    config = AutoConfig.for_model(kind, **SMALL, **more)
    model = initial.empty_model(config)
    config.save_pretrained(tmp_path)
    stored = {name: list(value.shape) for name, value in model.named_parameters()}
    sizes = type(read_sizes(write_headers(tmp_path / "any", "1b"), ""))(
        json.loads((tmp_path / "config.json").read_text()), stored
    )
    assert (gpt2_shapes if kind == GPT2 else llama_shapes)(sizes) == stored and weight_problem(sizes) == ("", "")


@pytest.mark.parametrize("kind", OTHERS)
def test_every_other_type_passes_as_transformers_writes_it(tmp_path: Path, kind: str) -> None:
    model = initial.empty_model(AutoConfig.for_model(kind, **SMALL), "cpu")
    model.save_pretrained(tmp_path)
    assert weight_problem(read_sizes(tmp_path, "")) == ("", "")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_type": "bert"}, "by its config.json a bert, and in model.safetensors model.embed_tokens.weight is no weight of a bert"),
        ({"model_type": "gpt2"}, "by its config.json a gpt2, and transformer.wte.weight is in none of its files"),
        ({"model_type": "qwen3"}, "and model.layers.0.self_attn.q_norm.weight is in none of its files"),
        ({"hidden_size": 1024}, r"and in model.safetensors model.embed_tokens.weight is \[128256, 2048\], not \[128256, 1024\]"),
        ({"num_hidden_layers": 17}, "and model.layers.16.self_attn.q_proj.weight is in none of its files"),
        ({"num_hidden_layers": 15}, "and in model.safetensors model.layers.15.self_attn.q_proj.weight is one more"),
        ({"tie_word_embeddings": False}, "and lm_head.weight is in none of its files"),
        ({"model_type": "gemma2", "num_hidden_layers": 17}, "a gemma2, and model.layers.16 is in none of its files"),
        ({"model_type": "gemma2", "vocab_size": 130_000}, r"embed_tokens.weight is \[128256, 2048\], not \[130000, 2048\]"),
    ],
)  # fmt: skip
def test_weights_of_another_config_are_refused(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    write_headers(tmp_path, "1b")
    check_published(tmp_path, "models.m.path")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))
    with pytest.raises(
        InputError, match=f"^models.m.path is '{tmp_path}': [^\n]*{message}: another model's config.json or weights$"
    ):
        check_published(tmp_path, "models.m.path")
