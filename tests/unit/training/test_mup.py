"""Rates and initial weights that carry over across width: what each parameter gets, and the coordinate check of mup.

The check (Yang et al. 2022, https://arxiv.org/abs/2203.03466, appendix D.1; mup/coord_check.py): after a few steps, how much the
activations have moved must not depend on the width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from crawl2llm.core.errors import InputError
from crawl2llm.training import initial, model, mup
from crawl2llm.training.checks import check_base_width
from crawl2llm.training.engine_settings import EngineSettings
from tests.unit.training.typed import engine_settings, train_settings

BASE = 64
WIDTHS = (64, 128, 256, 512)
STEPS = 4
VOCABULARY = 256


def settings(hidden: int, base: int | None, **changes: Any) -> EngineSettings:
    own = {"optimizer": "adamw", "learning_rate": 0.003, "weight_decay": 0.1, "muon_learning_rate": 0.02}
    more = {"muon_momentum": 0.95, "base_width": base, "model": {"hidden_size": hidden}}
    return engine_settings(**{**own, **more, **changes})


def config(hidden: int) -> LlamaConfig:
    """Heads are of 16, whatever the width: wider is more of them."""
    return LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2,
        num_attention_heads=hidden // 16, num_key_value_heads=hidden // 16, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def moved(hidden: int, base: int | None, seed: int) -> dict[str, float]:
    """How far the residual stream and the logits have moved after STEPS steps on one batch: root of the mean square."""
    own = settings(hidden, base)
    values = mup.scaled_weights(config(hidden), seed, mup.width_factor(own))
    made = initial.fill_model(initial.empty_model(config(hidden)), torch.device("cpu"), values)
    groups = model.parameter_groups(made, own)
    for group in groups:
        group["lr"] = own.learning_rate * group["scale"]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    tokens = torch.randint(VOCABULARY, (8, 33), generator=torch.Generator().manual_seed(seed))

    def seen() -> dict[str, torch.Tensor]:
        with torch.no_grad():
            found = made(input_ids=tokens[:, :-1], output_hidden_states=True, use_cache=False)
        return {"stream": found.hidden_states[1], "logits": found.logits}

    before = seen()
    for _ in range(STEPS):
        logits = made(input_ids=tokens[:, :-1], use_cache=False).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: float((value - before[name]).square().mean().sqrt()) for name, value in seen().items()}


def slopes(base: int | None) -> dict[str, float]:
    """By what power of the width each moves: the slope between the logarithms, by least squares."""
    rows = [moved(hidden, base, 0) for hidden in WIDTHS]
    x = torch.tensor(WIDTHS).double().log()
    found = {}
    for name in rows[0]:
        y = torch.tensor([row[name] for row in rows]).double().log()
        found[name] = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    return found


@pytest.mark.long
def test_activations_move_as_far_at_every_width() -> None:
    """The logits' share of the head's random start shrinks as 1/√width, what the head has learnt does not."""
    scaled, plain = slopes(BASE), slopes(None)
    assert abs(scaled["stream"]) < 0.05 and -0.3 < scaled["logits"] < 0.05, scaled
    assert plain["stream"] > 1 and plain["logits"] > 0.7, plain


def test_what_each_parameter_gets() -> None:
    wide, base = settings(4 * BASE, BASE), settings(4 * BASE, None)
    made = initial.empty_model(config(4 * BASE))
    shown = {id(parameter): name for name, parameter in made.named_parameters()}

    def found(own: EngineSettings) -> dict[str, tuple[float, float]]:
        return {
            shown[id(parameter)]: (group["scale"], group["weight_decay"])
            for group in model.parameter_groups(made, own)
            for parameter in group["params"]
        }

    by_name = found(wide)
    assert by_name["model.layers.0.self_attn.q_proj.weight"] == (0.25, 0.4)
    assert by_name["lm_head.weight"] == (0.25, 0.4)
    assert by_name["model.embed_tokens.weight"] == by_name["model.norm.weight"] == (1.0, 0.0)
    assert set(found(base).values()) == {(1.0, 0.1), (1.0, 0.0)}
    turned = found(replace(wide, optimizer="muon"))
    assert turned["model.layers.0.mlp.up_proj.weight"] == (0.02 / 0.003, 0.1) and turned["lm_head.weight"] == (
        0.25,
        0.4,
    )


def test_initial_weights() -> None:
    one = dict(initial.random_weights(config(4 * BASE), 7))
    for name, value in mup.scaled_weights(config(4 * BASE), 7, 4.0):
        share = 0.5 if "_proj" in name else 1.0
        if name == "lm_head.weight":
            share = 0.25
        assert torch.equal(value, one[name] * share), name


def test_without_a_base_nothing_is_scaled() -> None:
    assert mup.width_factor(settings(128, None)) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tie_embeddings": True}, "set pretrain.train.model.tie_embeddings to false"),
        ({"type": "mamba2"}, "allowed are llama, qwen3, gpt2"),
    ],
)
def test_refused(changes: dict[str, Any], words: str) -> None:
    shape = {"type": "llama", "tie_embeddings": False, **changes}
    with pytest.raises(InputError, match=words):
        check_base_width(train_settings(base_width=64, model=shape))
    check_base_width(train_settings(model=shape))
