"""Logits of a piece of the places at a time are those of the whole model, whatever it does behind its head."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from crawl2llm.stages.evaluate import heldout_loss, logit_pieces
from crawl2llm.training.heldout import choose_documents
from crawl2llm.training.model_loading import load_model

SHAPE = {
    "vocab_size": 80, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16,
    "num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
MORE = {"gemma2": {"final_logit_softcapping": 0.05}, "cohere": {"logit_scale": 0.3}, "granite": {"logits_scaling": 7.0}}


@pytest.mark.parametrize("kind", ["llama", "gemma2", "cohere", "granite", "gpt2", "gpt_neox", "mamba", "olmoe"])
def test_pieces_are_those_of_the_whole(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SHAPE, **MORE.get(kind, {}))).eval()
    inputs, places = torch.randint(0, 80, (3, 24)), torch.rand(3, 24) > 0.3
    (whole,) = logit_pieces.logit_pieces(model, inputs, places)
    monkeypatch.setattr(logit_pieces, "LOGITS_AT_ONCE", 10 * 4 * 80)
    pieces = list(logit_pieces.logit_pieces(model, inputs, places))
    assert {len(piece) for piece in pieces[:-1]} == {10} and len(pieces[-1]) <= 10
    torch.testing.assert_close(torch.cat(pieces), whole, rtol=1e-5, atol=1e-6)
    with torch.no_grad():  # the model is as before
        torch.testing.assert_close(model(input_ids=inputs).logits[places], whole, rtol=0, atol=0)


@pytest.mark.slow  # seconds
def test_heldout_loss_is_that_of_all_logits(inputs: dict[str, list[Path]], monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = load_model(inputs["model"][0].parent / "model")
    documents, _ = choose_documents(inputs["tokens"], 3000, 0)
    whole, lines = heldout_loss.measure_heldout(model, tokenizer.eos_token_id, documents, 64, 0.5, 16)
    for tokens in (5, 200):  # of a window, and of some
        monkeypatch.setattr(logit_pieces, "LOGITS_AT_ONCE", tokens * 4 * model.config.vocab_size)
        pieces, piece_lines = heldout_loss.measure_heldout(model, tokenizer.eos_token_id, documents, 64, 0.5, 16)
        assert pieces["loss"] == pytest.approx(whole["loss"], rel=1e-6)
        assert [line["nats"] for line in piece_lines] == pytest.approx([line["nats"] for line in lines], rel=1e-6)
