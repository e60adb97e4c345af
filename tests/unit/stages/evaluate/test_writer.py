"""Texts that a model writes several at a time are those that it writes one by one."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from crawl2llm.stages.evaluate import writer
from crawl2llm.stages.evaluate.settings import GenerateSettings
from crawl2llm.stages.evaluate.writer import Writer
from crawl2llm.training import slots
from crawl2llm.training.model_loading import load_tokenizer
from crawl2llm.training.sampling import Choice, next_logits

SETTINGS = {"max_new_tokens": 12, "temperature": 1.0, "top_p": 1.0, "batch_tokens": 4096}
PROMPTS = [
    "The",
    "",
    "The function returns a list of names",
    "A b",
    "Return the " * 40,
    "One of the values that is given here",
    "x y z",
]
SHAPE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "head_dim": 16,
}  # fmt: skip
TYPES = {
    "llama": SHAPE,
    "qwen3": SHAPE,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "mixtral": {**SHAPE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "mistral": {**SHAPE, "sliding_window": 8},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
}


@pytest.fixture(scope="module")
def tokenizer(inputs: dict[str, list[Path]]) -> Any:
    return load_tokenizer(inputs["model"][0].parent / "model")


def model(kind: str, tokenizer: Any) -> Any:
    """A tiny model whose logits differ much, so that what it writes depends on every token before."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), eos_token_id=None, bos_token_id=None, **TYPES[kind])
    made = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for value in made.parameters():
            if value.ndim > 1:
                value.mul_(6)
    return made


def written(model: Any, tokenizer: Any, seeds: list[int] | None = None, **changes: Any) -> list[dict[str, Any]]:
    found = dict(Writer(model, tokenizer, GenerateSettings(**{**SETTINGS, **changes})).write_texts(PROMPTS, seeds))
    return [found[place] for place in range(len(PROMPTS))]


def plain(model: Any, ids: list[int], most: int, end: int) -> tuple[list[int], float]:
    """Tokens and nats of a text that is written greedily without a cache, a mask or padding."""
    tokens, nats = list[int](), 0.0
    while len(tokens) < most and end not in tokens:
        with torch.no_grad():
            logs = model(input_ids=torch.tensor([[*ids, *tokens]])).logits[0, -1].float().log_softmax(-1)
        tokens.append(int(logs.argmax()))
        nats -= float(logs.max())
    return tokens, nats


@pytest.mark.parametrize("kind", TYPES)
def test_together_as_alone(kind: str, tokenizer: Any) -> None:
    lm, tokenizer = model(kind, tokenizer), copy.deepcopy(tokenizer)
    # A token that is written in the midst of a text ends it: texts of a batch end at different places.
    end = plain(lm, tokenizer(PROMPTS[2])["input_ids"], 12, -1)[0][4]
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
    assert tokenizer.eos_token_id == end
    plain_writer = Writer(lm, tokenizer, GenerateSettings(**SETTINGS))
    whole = [tokenizer(prompt)["input_ids"] or [end] for prompt in PROMPTS]
    ids = [row[-(plain_writer.context - plain_writer.max_new_tokens) :] for row in whole]
    expected = [plain(lm, row, 12, end) for row in ids]
    assert len({len(tokens) for tokens, _ in expected}) > 1
    for found in (written(lm, tokenizer), written(lm, tokenizer, batch_tokens=1)):
        for row, (tokens, nats), cut in zip(found, expected, (len(row) > 52 for row in whole), strict=True):
            assert row["text"] == tokenizer.decode(tokens, skip_special_tokens=True).strip()
            assert row["tokens"] == len(tokens) and row["ended"] == (tokens[-1] == end)
            assert row["nats"] == pytest.approx(nats, abs=2e-3)
            assert row["cut"] == (cut and plain_writer.context == 64)


def test_sampled_texts_depend_on_their_seed_alone(tokenizer: Any) -> None:
    lm, seeds = model("llama", tokenizer), [3, 1, 4, 1, 5, 9, 2]
    together = [row["text"] for row in written(lm, tokenizer, seeds, temperature=2.0)]
    assert together == [row["text"] for row in written(lm, tokenizer, seeds, temperature=2.0, batch_tokens=1)]
    assert together != [row["text"] for row in written(lm, tokenizer, [7] * 7, temperature=2.0)]
    # A nucleus of nothing else than the likeliest token is greedy.
    greedy = [row["text"] for row in written(lm, tokenizer)]
    assert greedy == [row["text"] for row in written(lm, tokenizer, seeds, temperature=2.0, top_p=1e-6)] != together


def test_in_slots_as_together(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: all prompts of a stretch at once, in as many slots as `batch_tokens` has room for."""
    lm, seeds = model("llama", tokenizer), [3, 1, 4, 1, 5, 9, 2]
    together = [written(lm, tokenizer), written(lm, tokenizer, seeds, top_p=0.9)]
    sizes = list[int]()

    def in_slots(lm: Any, choice: Choice, count: int) -> slots.SlotDrawer:
        sizes.append(count)
        return slots.SlotDrawer(partial(next_logits, lm), lm.device, choice, count, stride=5)

    monkeypatch.setattr(writer, "drawer_for", in_slots)
    for rows, more in zip(together, ({}, {"seeds": seeds, "top_p": 0.9}), strict=True):
        for row, expected in zip(written(lm, tokenizer, batch_tokens=200, **more), rows, strict=True):
            assert row == {**expected, "nats": pytest.approx(expected["nats"], abs=2e-3)}
    assert sizes == [3, 3]


def test_a_batch_holds_no_more_tokens_than_the_key_says(tokenizer: Any) -> None:
    narrow = Writer(model("llama", tokenizer), tokenizer, GenerateSettings(**{**SETTINGS, "batch_tokens": 60}))
    lengths = [5, 40, 1, 5, 5, 18, 200]
    found = list(narrow.length_batches(lengths))
    assert found == [[2, 0, 3], [4, 5], [1], [6]]
    assert list(narrow.length_batches([])) == []
    apart = Writer(model("mamba", tokenizer), tokenizer, GenerateSettings(**SETTINGS))
    assert list(apart.length_batches([5, 7, 5, 1])) == [[3], [0, 2], [1]]
