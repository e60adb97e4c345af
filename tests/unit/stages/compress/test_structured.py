"""Importance of layers, heads and neurons, and the model that is left without some."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress import structured
from crawl2llm.stages.compress.settings import PruneSettings
from crawl2llm.training import layers

SHAPE = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
WHOLE = {"layers": 1, "heads": 1, "neurons": 1}


@pytest.fixture(params=["llama", "qwen3"])
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    if request.param == "llama":
        return LlamaForCausalLM(LlamaConfig(**SHAPE, attention_bias=True)).eval()
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=6, tie_word_embeddings=True)).eval()


@pytest.fixture
def windows() -> torch.Tensor:
    return torch.randint(0, 50, (5, 20), generator=torch.Generator().manual_seed(1))


def test_importance_by_plain_computation(model: Any, windows: torch.Tensor) -> None:
    found = structured.measure_importance(model, windows, batch=2)
    seen: dict[str, torch.Tensor] = {}
    layer = model.model.layers[1]
    hooks = [
        part.register_forward_pre_hook(lambda _, given, name=name: seen.__setitem__(name, given[0]))
        for name, part in (("heads", layer.self_attn.o_proj), ("neurons", layer.mlp.down_proj))
    ]
    ends: list[tuple[torch.Tensor, torch.Tensor]] = []
    hooks.append(
        layer.register_forward_hook(
            lambda _, given, made: ends.append((given[0], made[0] if isinstance(made, tuple) else made))
        )
    )
    with torch.no_grad():
        model(windows)
    for hook in hooks:
        hook.remove()
    cosine = torch.nn.functional.cosine_similarity(*ends[0], dim=-1)
    assert found.layers[1] == pytest.approx(float(1 - cosine.mean()), rel=1e-4)
    assert found.neurons[1].tolist() == pytest.approx(seen["neurons"].abs().mean((0, 1)).tolist(), rel=1e-4)
    heads = seen["heads"].reshape(5, 20, 4, -1).square().sum(-1).sqrt().mean((0, 1))
    assert found.heads[1].tolist() == pytest.approx([float(heads[:2].sum()), float(heads[2:].sum())], rel=1e-4)


@pytest.mark.parametrize(
    "share", [{"heads": 0.5}, {"neurons": 0.5}, {"layers": 0.67}, {"heads": 0.5, "neurons": 0.3, "layers": 0.34}]
)
def test_it_computes_what_the_old_one_computes_without_those_parts(
    model: Any, windows: torch.Tensor, share: dict[str, float]
) -> None:
    found = structured.measure_importance(model, windows, 5)
    config, weights, left = structured.cut_model(model, found, PruneSettings(**(WHOLE | share)))
    small = AutoModelForCausalLM.from_config(config).eval()
    missing = small.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}
    size, kept = structured.head_size(model.config), left["kept_layers"]
    with torch.no_grad():
        for at, layer in enumerate(model.model.layers):
            groups = structured.best_places(found.heads[at], (WHOLE | share)["heads"])
            mask = torch.zeros(4 * size)
            mask[structured.part_rows(groups, 2 * size)] = 1
            layer.self_attn.o_proj.weight *= mask
            mask = torch.zeros(12)
            mask[structured.best_places(found.neurons[at], (WHOLE | share)["neurons"])] = 1
            layer.mlp.down_proj.weight *= mask
        model.model.layers = torch.nn.ModuleList(layer for at, layer in enumerate(model.model.layers) if at in kept)
        for at, layer in enumerate(model.model.layers):
            layer.self_attn.layer_idx = at
        model.config.num_hidden_layers = len(kept)
        torch.testing.assert_close(small(windows).logits, model(windows, use_cache=False).logits, atol=1e-5, rtol=1e-4)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters()) or len(kept) < 3


def test_the_least_important_goes(model: Any, windows: torch.Tensor) -> None:
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[5] = 0  # this neuron never says anything
        for part in (model.model.layers[2].self_attn.o_proj, model.model.layers[2].mlp.down_proj):
            part.weight.zero_()  # this layer changes nothing
            if part.bias is not None:
                part.bias.zero_()
    found = structured.measure_importance(model, windows, 5)
    assert found.neurons[1].argmin() == 5 and found.neurons[1][5] == 0
    assert found.layers[2] == pytest.approx(0, abs=1e-6)
    _, _, left = structured.cut_model(model, found, PruneSettings(**(WHOLE | {"layers": 0.67})))
    assert left["kept_layers"] == [0, 1]


def test_at_least_one_stays_and_of_equal_ones_the_first() -> None:
    assert structured.best_places(torch.tensor([1.0, 2.0, 2.0]), 0.01) == [1]
    assert structured.best_places(torch.tensor([3.0, 1.0, 2.0]), 0.67) == [0, 2]
    assert structured.best_places(torch.tensor([1.0, 1.0, 1.0, 1.0]), 0.5) == [0, 1]


def test_a_model_of_another_layout_is_refused() -> None:
    from transformers import GPT2Config

    with pytest.raises(InputError, match="takes models of type llama, mistral, qwen2, qwen3; this one is of type gpt2"):
        structured.check_architecture(GPT2Config())


def test_importance_is_measured_on_the_device_of_the_model(
    model: Any, windows: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it: tensors of the meta device and of the CPU do not add up."""
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: self)
    with layers.without_packing_search():  # transformers would ask whether sequences are packed
        found = structured.measure_importance(model.to("meta"), windows, 2)
    assert found.layers.is_meta and found.heads.is_meta and found.neurons.is_meta
