"""The order of the pairs and their micro-batches: a function of the step alone, each pair once in an epoch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.finetune import batches
from scripts.finetune.batches import Batches, dealt, micro_batch, pieces, tokens
from scripts.finetune.template import Template
from scripts.models.load import load_tokenizer
from scripts.pretrain.heldout import IGNORE

TEMPLATE = Template.parse("Question: {question}\nAnswer: {answer}")


class Tokenizer:
    eos_token_id = 0


def made(monkeypatch: pytest.MonkeyPatch, pairs: int, processes: int, **settings: Any) -> Batches:
    rows = [{"id": f"{number:03d}", "question": "", "answer": ""} for number in range(pairs)]
    monkeypatch.setattr(batches, "read_pairs", lambda *_: (rows, TEMPLATE))
    given = {"epochs": 1, "batch_size": 8, "micro_batch": 8, "max_length": 64, "seed": 0, **settings}
    return Batches(Path("manifest.json"), Tokenizer(), given, processes)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 20), st.integers(1, 4), st.sampled_from([0.4, 1, 2, 2.5]))
def test_every_pair_once_an_epoch_on_any_processes(
    pairs: int, batch: int, micro: int, processes: int, epochs: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = made(patch, pairs, processes, batch_size=batch, micro_batch=micro, epochs=epochs)
        alone = made(patch, pairs, 1, batch_size=batch, micro_batch=batch, epochs=epochs)
    orders = [list(found.order(step)) for step in range(1, found.steps + 1)]
    assert orders == [list(alone.order(step)) for step in range(1, alone.steps + 1)]
    assert [len(order) for order in orders[:-1]] == [batch] * (found.steps - 1) and 0 < len(orders[-1]) <= batch
    seen = Counter(number for order in orders for number in order)
    assert seen.total() == max(1, round(epochs * pairs)) and max(seen.values()) - min(seen.values()) <= 1
    assert found.size <= micro
    for order in orders:
        turns = dealt(order, processes, found.size)
        assert len(turns) <= found.rounds and all(len(turn) == processes for turn in turns)
        assert [number for turn in turns for part in turn for number in part] == order
    assert max(len(dealt(order, processes, found.size)) for order in orders) == (
        found.rounds if found.steps > 1 else len(dealt(orders[0], processes, found.size))
    )


def test_another_seed_or_epoch_is_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (made(monkeypatch, 40, 1, batch_size=40, epochs=2, seed=seed) for seed in (0, 1))
    orders = [list(found.order(step)) for found in (one, other) for step in (1, 2)]
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert one.ids(1) == [f"{number:03d}" for number in range(40)]


def test_a_micro_batch_counts_the_answers_alone(base_model: Path, pairs_manifest: Path) -> None:
    tokenizer = load_tokenizer(base_model.parent / "model")
    rows = [json.loads(line) for line in (pairs_manifest.parent / "train.jsonl").read_text().splitlines()][:3]
    found = list(pieces(rows, TEMPLATE, tokenizer, 64))
    inputs, targets = micro_batch(found, 0)
    assert inputs.shape == targets.shape == (3, max(len(ids) for ids, *_ in found) - 1)
    for row, line, wanted in zip(rows, inputs.tolist(), targets.tolist(), strict=True):
        text = TEMPLATE.prompt(row["question"]) + TEMPLATE.completion(row["answer"])
        ids = [*tokenizer(text)["input_ids"], 0][:64]
        assert line[: len(ids) - 1] == ids[:-1] and not any(line[len(ids) - 1 :])
        counted = [token for token in wanted if token != IGNORE]
        assert counted == ids[len(ids) - len(counted) :] and wanted[: len(ids) - 1][-1] == ids[-1]
        assert set(wanted[len(ids) - 1 :]) <= {IGNORE}
        if len(ids) < 64:
            assert tokenizer.decode(counted) == TEMPLATE.completion(row["answer"]) + tokenizer.eos_token


def test_a_process_without_a_pair_has_a_row_that_counts_nothing() -> None:
    inputs, targets = micro_batch([], 7)
    assert inputs.tolist() == [[7]] and targets.tolist() == [[IGNORE]]


def test_prompt_and_answer_are_cut_as_trl_cuts_them(base_model: Path) -> None:
    tokenizer = load_tokenizer(base_model.parent / "model")
    prompt, answer = TEMPLATE.prompt("What does heapify do?"), TEMPLATE.completion("Transform list into a heap.")
    ids, shared = tokens(tokenizer, prompt, answer, 64)
    assert tokenizer.decode(ids[:shared]) == prompt
    assert tokenizer.decode(ids[shared:]) == answer + tokenizer.eos_token
    assert tokens(tokenizer, prompt, answer, 5) == (ids[:5], 5)
    cut = list(pieces([{"question": "What does heapify do?", "answer": "Transform."}], TEMPLATE, tokenizer, 5))
    assert [(len(ids), scored) for ids, scored, _ in cut] == [(5, 0)]
