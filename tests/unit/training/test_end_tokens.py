"""Every token that a published model names ends its answers, in each way in which they are drawn."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from crawl2llm.stages.evaluate.samples import continue_tokens
from crawl2llm.stages.evaluate.settings import GenerateSettings, ModelSettings
from crawl2llm.stages.evaluate.writer import Writer
from crawl2llm.training import sampling, slots
from crawl2llm.training.end_tokens import add_end, further_ends, further_ends_in
from crawl2llm.training.model_loading import load_model, load_tokenizer
from tests.unit.training.tiny_published import write_published

PROMPT = [5, 6, 7]
MOST = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_published(tmp_path_factory.mktemp("ends"))


def end_with(folder: Path, *ends: int) -> tuple[Any, Any]:
    """The model, whose generation_config.json names these ends."""
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": list(ends)}))
    return load_model(folder)


def answers(model: Any, choice: sampling.Choice) -> list[list[int]]:
    """By slots and together, by the same draws."""
    draws = torch.rand(1, MOST, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawer = slots.drawer_for(model, choice, 1)
    following = partial(sampling.next_logits, model)
    return [drawer.draw([PROMPT], draws)[0].ids, sampling.draw_together(following, [PROMPT], draws, choice)[0].ids]


def test_each_of_several_ends_an_answer(folder: Path) -> None:
    model, tokenizer = end_with(folder, 1)
    end = tokenizer.eos_token_id
    whole, _ = answers(model, sampling.Choice(end))
    at = next(number for number in range(1, MOST) if whole[number] not in (*whole[:number], end))
    model, tokenizer = end_with(folder, end, whole[at])
    assert further_ends(model, end) == further_ends_in(folder, end) == (whole[at],)
    # The token that was drawn, not the tokenizer's end in its place: alignments train on it.
    assert answers(model, sampling.Choice(end, further_ends=(whole[at],))) == [whole[: at + 1]] * 2


def test_a_model_that_is_given_away_stops_where_its_answers_end(tmp_path: Path) -> None:
    """Its tokenizer and generation_config.json are published with the end of documents, and its chat template ends answers otherwise."""
    folder = write_published(tmp_path)
    end = load_tokenizer(folder).eos_token_id
    (folder / "generation_config.json").write_text('{"eos_token_id": 1, "top_k": 20}')
    assert end != 1 and add_end(folder, end) == [folder / "generation_config.json"] and not add_end(folder, end)
    config = AutoModelForCausalLM.from_pretrained(folder).generation_config
    assert config.eos_token_id == [end, 1] and config.top_k == 20
    (folder / "generation_config.json").unlink()
    assert add_end(folder, end) and further_ends_in(folder, end) == (1,)


def test_greedy_texts_end_at_any_of_them(folder: Path) -> None:
    settings = ModelSettings()
    whole = continue_tokens(*end_with(folder, 1), PROMPT, MOST, settings, None)[0].tolist()
    ended = continue_tokens(*end_with(folder, 1, whole[len(PROMPT)]), PROMPT, MOST, settings, None)[0].tolist()
    assert len(whole) > len(ended) == len(PROMPT) + 1


def test_a_writer_ends_at_any_of_them(folder: Path) -> None:
    model, tokenizer = end_with(folder, 1)
    settings = GenerateSettings(max_new_tokens=MOST)
    ((_, before),) = Writer(model, tokenizer, settings).write_texts(["The"])
    prompt, draws = tokenizer("The")["input_ids"], torch.zeros(1, MOST, dtype=torch.float64)
    choice = sampling.Choice(tokenizer.eos_token_id, 0.0)
    ids = sampling.draw_together(partial(sampling.next_logits, model), [prompt], draws, choice)[0].ids
    with torch.no_grad():
        nats = float(-model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)[ids[0]])
    model, tokenizer = end_with(folder, 1, ids[0])
    ((_, row),) = Writer(model, tokenizer, settings).write_texts(["The"])
    assert (before["tokens"], row["tokens"], row["ended"], row["text"]) == (len(ids), 1, True, "")
    assert row["nats"] == pytest.approx(nats, abs=1e-3)
