"""Which models of pretrain.train.model the plan refuses: those that see what they are to predict, or that cannot be built."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from crawl2llm.chain import config as configuration
from crawl2llm.core.errors import InputError
from crawl2llm.core.plan_cache import Cache
from crawl2llm.training import causality, checks, model_check
from crawl2llm.training.parameters import FAMILIES

LONG = os.environ.get("CRAWL2LLM_LONG")  # see tests/conftest.py
NAMED = sorted({*FAMILIES, *checks.MASKED_TYPES, "mamba", "mamba2"})  # of the documentation
# Of transformers' types with a language model's head those whose attention looks both ways, without `is_decoder`.
ENCODERS = ("bert", "bert-generation", "big_bird", "electra", "roformer")
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "layers": 2, "heads": 4, "kv_heads": 4}


def config(model: dict[str, Any], **train: Any) -> dict[str, Any]:
    return configuration.validate({"pretrain": {"train": {"model": model, **train}}})


def said(model: dict[str, Any], **train: Any) -> str:
    return causality.model_problem(model_check.ask_of(config(model, **train)))


@pytest.mark.parametrize("kind", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) if LONG else [*NAMED, *ENCODERS])
def test_by_type(kind: str) -> None:
    """No type that passes moves a logit before a changed token, and those of the documentation pass."""
    why = said({"type": kind})
    if kind in NAMED:
        assert not why
    if kind in ENCODERS:
        assert f"type is '{kind}', whose models see the tokens that they are to predict" in why


def test_an_encoder_that_is_a_decoder_passes() -> None:
    assert not said({"type": "bert", "overrides": {"is_decoder": True}})


def test_what_moves_is_seen() -> None:
    """By the definition alone: the same weights, with and without the mask."""
    for decoder in (True, False):
        torch.manual_seed(0)
        made = AutoModelForCausalLM.from_config(
            AutoConfig.for_model("bert", vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                                 intermediate_size=32, is_decoder=decoder)
        )  # fmt: skip
        assert causality.sees_later_tokens(made) is not decoder


@pytest.mark.parametrize(
    ("model", "train", "why"),
    [
        ({"type": "gpt2", "intermediate_size": 128}, {}, "model.intermediate_size: an architecture of type 'gpt2' has no"),
        ({"type": "mamba", "heads": 4}, {}, "model.heads: an architecture of type 'mamba' has no"),
        (SHAPE, {"engine": "torch", "parallel": {"tensor": 3}}, "tensor is 3, which must divide .*heads = 4"),
        ({"overrides": {"rope_thetta": 1}}, {}, "overrides.rope_thetta: the configuration of type 'llama' has no such key"),
        ({"overrides": {"hidden_act": "nonsense"}}, {}, "transformers builds no model of type 'llama' .*: .*nonsense"),
        ({"type": "roberta"}, {}, "type is 'roberta', whose models do not run with these keys on text alone"),
    ],
)  # fmt: skip
def test_what_can_only_fail_in_training_is_refused(model: dict[str, Any], train: dict[str, Any], why: str) -> None:
    assert re.search(why, said(model, **train))


def test_a_plan_asks_in_another_process_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_check, "_cache", Cache(tmp_path / "models.json"))
    started: list[Any] = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *args, **more: started.append(args) or run(*args, **more))
    wrong, right = config({"type": "bert"}), config(SHAPE)
    model_check.prefetch_answers([wrong, right])
    assert len(started) == 1
    model_check.check_model(right)
    with pytest.raises(InputError, match=r"pretrain.train.model.type is 'bert', whose models see"):
        model_check.check_model(wrong)
    model_check.save_answers()
    monkeypatch.setattr(model_check, "_cache", Cache(tmp_path / "models.json"))
    model_check.check_model(right)
    assert len(started) == 1
    model_check.check_model(config({**SHAPE, "layers": 3}))
    assert len(started) == 2
