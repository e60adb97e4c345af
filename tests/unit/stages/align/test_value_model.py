"""A language model with a model of values beside it: what it computes, what it begins with, and what of it is the language model's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from crawl2llm.core.errors import InputError
from crawl2llm.stages.align import reward_inputs, value_model
from crawl2llm.training import initial

KINDS: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 8, "tie_word_embeddings": False},
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}
SMALL = {
    "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip


def configured(kind: str) -> Any:
    wide = {} if kind == "gpt2" else {"intermediate_size": 32, "num_key_value_heads": 1}
    found = AutoConfig.for_model(kind, **SMALL, **wide, **KINDS[kind])
    found.architectures = [type(AutoModelForCausalLM.from_config(found)).__name__]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_both_bodies_compute_what_each_does_alone(kind: str) -> None:
    config = configured(kind)
    torch.manual_seed(0)
    alone = AutoModelForCausalLM.from_config(config).eval()
    parent = dict(alone.named_parameters())
    both = value_model.valued_config(config, 0, "here")
    given = value_model.initial_weights(
        ((name, parent.get(name, value)) for name, value in initial.random_weights(both, 0)), parent.get
    )
    made = initial.fill_model(initial.empty_model(both), torch.device("cpu"), given).eval()
    ids = torch.randint(0, 64, (2, 9))
    found, plain = made(input_ids=ids, values=True, use_cache=False), made(input_ids=ids)
    assert torch.equal(found.logits, plain.logits) and torch.allclose(plain.logits, alone(ids).logits, atol=1e-6)
    assert found.expected.shape == (2, 9) and not found.expected.any(), "the head begins at 0"

    scores = AutoModelForSequenceClassification.from_config(reward_inputs.reward_config(config, 0, "here")).eval()
    body = {name: value for name, value in alone.base_model.state_dict().items()}
    scores.base_model.load_state_dict(body)
    with torch.no_grad():
        made.value_model.score.weight.copy_(scores.score.weight)
        wanted = scores.score(scores.base_model(ids)[0])[..., 0]
    assert torch.allclose(made(input_ids=ids, values=True).expected, wanted, atol=1e-6)
    rest = {name for name, _ in made.named_parameters() if not name.startswith(value_model.PREFIX)}
    assert rest == parent.keys()
    # The gradient of values is none of the language model's.
    made(input_ids=ids, values=True).expected.sum().backward()
    assert all((value.grad is None) == (name in rest) for name, value in made.named_parameters())


def test_what_has_no_scoring_class_is_named() -> None:
    mamba = AutoConfig.for_model("mamba", vocab_size=64, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(
        InputError, match=r"models\.ppo\.from: method ppo of align\.train takes no model of type 'mamba'"
    ):
        value_model.valued_config(mamba, 0, "models.ppo.from")
