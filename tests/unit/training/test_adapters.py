"""An adapter that is added to the weights computes what it computed beside them, for layers of both classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, LlamaConfig

from crawl2llm.core.errors import InputError
from crawl2llm.training import adapters, initial
from tests.unit.training.typed import tuning_settings

SETTINGS = tuning_settings(adapter="lora", adapter_rank=4, adapter_alpha=8)
CONFIGS = [
    GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0),
    LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4),
    GPTNeoXConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        bos_token_id=0, eos_token_id=0,
    ),
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config.model_type))
@torch.no_grad()
def test_merged_is_the_same_model(config: Any) -> None:
    """GPT-2's layers hold their weights the other way round, and a square one does not show it."""
    made = adapters.empty_model(config, SETTINGS, "finetune.train")
    given = adapters.weights_with_adapter(made, initial.random_weights(config, 0), 0)
    model = initial.fill_model(
        adapters.empty_model(config, SETTINGS, "finetune.train"), torch.device("cpu"), given
    ).eval()
    random = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if name.endswith(adapters.UP):
            parameter.copy_(torch.randn(parameter.shape, generator=random))
    ids = torch.arange(20)[None]
    plain = AutoModelForCausalLM.from_config(config).eval()
    own = {name: value.detach() for name, value in model.named_parameters()}
    plain.load_state_dict(adapters.merged_weights(own, SETTINGS, made), strict=False)
    without = AutoModelForCausalLM.from_config(config).eval()
    without.load_state_dict(dict(initial.random_weights(config, 0)), strict=False)
    assert torch.allclose(plain(ids).logits, model(ids).logits, atol=1e-5)
    assert not torch.allclose(plain(ids).logits, without(ids).logits, atol=1e-2)


def test_an_output_matrix_that_is_the_embedding_gets_no_adapter() -> None:
    """What is added to the one would be added to the other."""
    settings = replace(SETTINGS, adapter_targets=("q_proj", "lm_head"))
    shape = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    with pytest.raises(InputError, match=r"finetune\.train\.adapter_targets: .* 'lm_head' .* model\.embed_tokens"):
        adapters.empty_model(LlamaConfig(**shape, tie_word_embeddings=True), settings, "finetune.train")
    made = adapters.empty_model(LlamaConfig(**shape), settings, "finetune.train")
    assert any("lm_head" in name for name, parameter in made.named_parameters() if parameter.requires_grad)
