"""Initial weights made block by block: as transformers distributes them, the same for every depth, and refused where that cannot be."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers import initialization as init

from crawl2llm.core.errors import InputError
from crawl2llm.training import initial

COMMON: dict[str, Any] = {"hidden_size": 64, "vocab_size": 300, "bos_token_id": 0, "eos_token_id": 0}
DEEP: dict[str, Any] = {**COMMON, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {**DEEP, "tie_word_embeddings": True},
    "qwen3": {**DEEP, "num_key_value_heads": 2, "tie_word_embeddings": False},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, **COMMON},
    "gpt_neox": DEEP,
    "mixtral": {**DEEP, "num_key_value_heads": 2, "num_local_experts": 4},
    "olmoe": {**DEEP, "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2},
    "mamba2": {**COMMON, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16, "expand": 2, "n_groups": 1},
}


def config(kind: str, **changes: Any) -> Any:
    return AutoConfig.for_model(kind, **{**KINDS[kind], **changes})


@pytest.mark.parametrize("kind", KINDS)
def test_distributed_as_by_transformers(kind: str) -> None:
    """Every parameter and buffer has a value; constants are equal, random numbers have the same mean and spread."""
    torch.manual_seed(0)
    whole = AutoModelForCausalLM.from_config(config(kind))
    own = initial.fill_model(
        initial.empty_model(config(kind)), torch.device("cpu"), initial.random_weights(config(kind), 3)
    )
    expected = {**dict(whole.named_parameters()), **dict(whole.named_buffers())}
    found = {**dict(own.named_parameters()), **dict(own.named_buffers())}
    assert found.keys() == expected.keys()
    for name, value in found.items():
        one, other = value.detach().double(), expected[name].detach().double()
        assert one.shape == other.shape and one.isfinite().all(), name
        if one.numel() < 2 or other.std() == 0 or name.endswith("inv_freq"):
            assert torch.equal(one, other), name
        elif one.numel() > 200:
            assert float(one.std() / other.std()) == pytest.approx(1, abs=0.25), name
            assert float(one.mean() - other.mean()) == pytest.approx(0, abs=6 * float(other.std()) / one.numel() ** 0.5)


def test_a_block_depends_on_the_seed_and_its_name_alone() -> None:
    two, three = (dict(initial.random_weights(config("llama", num_hidden_layers=layers), 1)) for layers in (2, 3))
    assert two.keys() < three.keys() and all(torch.equal(value, three[name]) for name, value in two.items())
    other = dict(initial.random_weights(config("llama"), 2))
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(two[name], other[name])
    assert not torch.equal(two[name], two[name.replace("0", "1")])


def test_one_block_at_a_time() -> None:
    """What was given before is let go: no more is alive than the largest part, here the embedding."""
    assert [type(block).__name__ for block in initial.decoder_layers(initial.empty_model(config("llama")))] == [
        "LlamaDecoderLayer"
    ] * 2
    given: list[tuple[int, Any]] = []
    alive = []
    for _, value in initial.random_weights(config("llama", num_hidden_layers=8, vocab_size=1000), 1):
        given.append((value.numel(), weakref.ref(value)))
        del value
        alive.append(sum(size for size, held in given if held() is not None))
    assert max(alive) <= 64_000 < sum(size for size, _ in given) / 4


class OddConfig(LlamaConfig):
    """Of Odd."""

    model_type = "odd"


class Odd(LlamaForCausalLM):
    """Sets a layer's weight from the top."""

    config_class = OddConfig

    def _init_weights(self, module: torch.nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LlamaForCausalLM):
            init.zeros_(module.model.layers[0].mlp.down_proj.weight)


def test_weights_that_are_set_from_elsewhere_are_refused() -> None:
    AutoConfig.register("odd", OddConfig, exist_ok=True)
    AutoModelForCausalLM.register(OddConfig, Odd, exist_ok=True)
    with pytest.raises(InputError, match=r"sets .*down_proj.weight from the top"):
        list(initial.random_weights(OddConfig(**KINDS["llama"]), 1))
