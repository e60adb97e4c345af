"""Parameters by arithmetic are those that transformers counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.training.parameters import FAMILIES, count_model_parameters
from tests.unit.training.typed import shape_settings

SHAPE: dict[str, Any] = {
    "hidden_size": 96, "intermediate_size": 160, "layers": 3, "heads": 6, "kv_heads": 2, "tie_embeddings": True,
    "context": 64, "overrides": {},
}  # fmt: skip
NONE: dict[str, Any] = {"kv_heads": None, "intermediate_size": None}
CASES: list[dict[str, Any]] = [
    {"type": "llama"},
    {"type": "llama", "tie_embeddings": False},
    {"type": "llama", "kv_heads": None},
    {"type": "llama", "overrides": {"head_dim": 32}},
    {"type": "llama", "intermediate_size": None},
    {"type": "mistral"},
    {"type": "mistral", **NONE, "heads": 8},
    {"type": "qwen2"},
    {"type": "qwen2", **NONE, "heads": 32, "hidden_size": 128},
    {"type": "qwen3"},
    {"type": "qwen3", "overrides": {"head_dim": 16}},
    {"type": "qwen3", **NONE, "heads": 32, "hidden_size": 128},
    {"type": "mixtral"},
    {"type": "mixtral", "overrides": {"num_local_experts": 4, "num_experts_per_tok": 1}},
    {"type": "olmoe", "kv_heads": 6},
    {"type": "olmoe", "overrides": {"num_experts": 8, "num_experts_per_tok": 2}},
    {"type": "gpt2", **NONE},
    {"type": "gpt2", **NONE, "overrides": {"n_inner": 100}},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case.values())))
def test_they_are_those_of_the_model(case: dict[str, Any]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from crawl2llm.training.model import build_config, parameter_counts

    shape = SHAPE | case
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(build_config(shape_settings(**shape), 500, 0))
    real, found = parameter_counts(built), count_model_parameters(shape_settings(**shape), 500)
    assert (found.total, found.non_embedding) == (real["total"], real["non_embedding"])
    assert found.exact and found.total - found.embedding == found.non_embedding
    experts = FAMILIES[shape["type"]].experts
    if experts:  # a token uses the chosen experts' matrices alone
        settings, feed = built.config, shape["intermediate_size"]
        idle = getattr(settings, experts) - settings.num_experts_per_tok
        assert found.active == found.total - idle * shape["layers"] * 3 * shape["hidden_size"] * feed
    else:
        assert found.active == found.total and found.multiplied == real["multiplied"]


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.booleans())
def test_a_token_uses_no_more_than_there_is(number: int, chosen: int, tied: bool) -> None:
    more = {"num_local_experts": number, "num_experts_per_tok": min(chosen, number)}
    found = count_model_parameters(
        shape_settings(**{**SHAPE, "type": "mixtral", "tie_embeddings": tied, "overrides": more}), 500
    )
    assert found.multiplied <= found.active <= found.total
    assert (found.active == found.total) == (chosen >= number)


def test_of_an_unknown_type_it_says_that_it_is_none() -> None:
    assert not count_model_parameters(shape_settings(**SHAPE, type="mamba2"), 500).exact
