"""Greedy answers of which each leaves the batch at its end: those of lm-evaluation-harness's own loop."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawl2llm.stages.evaluate import greedy_answers, harness
from crawl2llm.stages.evaluate.truncation import BoundedScorer
from crawl2llm.training.model_loading import load_model

PROMPTS = ["The", "The function returns a list of the names", "A module has", "Return"]


def write_texts(model: Path, stops: list[str], monkeypatch: pytest.MonkeyPatch, plain: bool) -> list[str]:
    """What the model writes after PROMPTS, by a loop of our own or the harness's."""
    if not plain:
        monkeypatch.setattr(greedy_answers, "is_plain", lambda *_: False)
    lm: Any = harness.language_model(*load_model(model), context=64, batch_size=4)
    BoundedScorer(lm)
    options = {"until": stops, "max_gen_toks": 24, "do_sample": False}
    answers: list[str] = lm.generate_until([SimpleNamespace(args=(prompt, options)) for prompt in PROMPTS])
    return answers


@pytest.mark.parametrize("stops", [["\n"], ["e", "zzz"], ["zzz"], ["the", " a", "."]])
def test_answers_are_those_of_the_harness(
    inputs: dict[str, list[Path]], stops: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.go_offline()
    model = inputs["model"][0].parent / "model"
    own = write_texts(model, stops, monkeypatch, plain=True)
    assert own == write_texts(model, stops, monkeypatch, plain=False)
    assert len(set(own)) > 1


def test_what_is_not_plain_is_left_to_the_harness(inputs: dict[str, list[Path]]) -> None:
    model, _ = load_model(inputs["model"][0].parent / "model")
    greedy = {"do_sample": False, "temperature": 0.0, "attention_mask": None}
    assert greedy_answers.is_plain(model, greedy)
    assert not greedy_answers.is_plain(model, {**greedy, "temperature": 0.5})
    assert not greedy_answers.is_plain(model, {**greedy, "num_beams": 2})
    model.generation_config.repetition_penalty = 1.2
    assert not greedy_answers.is_plain(model, greedy)
