"""The order of the pairs and their micro-batches: a function of the step alone, each pair once in an epoch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.stages.finetune.settings import TrainSettings
from crawl2llm.training import pair_batches
from crawl2llm.training.heldout import IGNORE
from crawl2llm.training.model_loading import load_tokenizer
from crawl2llm.training.pair_batches import (
    Batches,
    Cuts,
    cut_counts,
    cuts_summary,
    deal_micro_batches,
    micro_batch,
    pack_pairs,
    packed_micro_batch,
    read_selected_pairs,
    report_notes,
    tokenize_pair,
    tokenized_pairs,
)
from crawl2llm.training.pair_run import check_answers
from crawl2llm.training.question_cuts import fit_pairs
from crawl2llm.training.template import Template

TEMPLATE = Template.parse("Question: {question}\nAnswer: {answer}")
SETTINGS = {"epochs": 1, "batch_size": 8, "micro_batch": 8, "max_length": 64, "seed": 0}


class Tokenizer:
    """Makes a token of each character."""

    eos_token_id, eos_token, chat_template = 0, "\n", None
    added_tokens_decoder: ClassVar[dict[int, Any]] = {}

    def __call__(self, texts: list[str]) -> dict[str, list[list[int]]]:
        return {"input_ids": [list(map(ord, text)) for text in texts]}


def json_rows(manifest: Path) -> list[dict[str, Any]]:
    """The training pairs of a manifest."""
    return [json.loads(line) for line in (manifest.parent / "train.jsonl").read_text().splitlines()]


def made(monkeypatch: pytest.MonkeyPatch, pairs: int, processes: int, **settings: Any) -> Batches:
    rows = [{"id": f"{number:03d}", "question": "", "answer": ""} for number in range(pairs)]
    monkeypatch.setattr(pair_batches, "read_pairs", lambda *_: (rows, TEMPLATE))
    return Batches(
        Path("manifest.json"), Tokenizer(), TrainSettings.model_validate({**SETTINGS, **settings}), processes
    )


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 20), st.integers(1, 4), st.sampled_from([0.4, 1, 2, 2.5]))
def test_every_pair_once_an_epoch_on_any_processes(
    pairs: int, batch: int, micro: int, processes: int, epochs: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = made(patch, pairs, processes, batch_size=batch, micro_batch=micro, epochs=epochs)
        alone = made(patch, pairs, 1, batch_size=batch, micro_batch=batch, epochs=epochs)
    orders = [list(found.step_indices(step)) for step in range(1, found.steps + 1)]
    assert orders == [list(alone.step_indices(step)) for step in range(1, alone.steps + 1)]
    assert [len(order) for order in orders[:-1]] == [batch] * (found.steps - 1) and 0 < len(orders[-1]) <= batch
    seen = Counter(number for order in orders for number in order)
    assert seen.total() == max(1, round(epochs * pairs)) and max(seen.values()) - min(seen.values()) <= 1
    assert found.size <= micro
    for order in orders:
        turns = deal_micro_batches(order, processes, found.size)
        assert len(turns) <= found.rounds and all(len(turn) == processes for turn in turns)
        assert [number for turn in turns for part in turn for number in part] == order
    assert max(len(deal_micro_batches(order, processes, found.size)) for order in orders) == (
        found.rounds if found.steps > 1 else len(deal_micro_batches(orders[0], processes, found.size))
    )


def test_another_seed_or_epoch_is_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (made(monkeypatch, 40, 1, batch_size=40, epochs=2, seed=seed) for seed in (0, 1))
    orders = [list(found.step_indices(step)) for found in (one, other) for step in (1, 2)]
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert one.ids(1) == [f"{number:03d}" for number in range(40)]


def test_a_micro_batch_counts_the_answers_alone(base_model: Path, pairs_manifest: Path) -> None:
    tokenizer = load_tokenizer(base_model.parent / "model")
    rows = json_rows(pairs_manifest)[:3]
    found = list(tokenized_pairs(rows, TEMPLATE, tokenizer, 64))
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
    ids, shared = tokenize_pair(tokenizer, prompt, answer, 64)
    assert tokenizer.decode(ids[:shared]) == prompt
    assert tokenizer.decode(ids[shared:]) == answer + tokenizer.eos_token
    assert tokenize_pair(tokenizer, prompt, answer, 5) == (ids[:5], 5)
    cut = list(tokenized_pairs([{"question": "What does heapify do?", "answer": "Transform."}], TEMPLATE, tokenizer, 5))
    assert [(len(ids), scored) for ids, scored, _ in cut] == [(5, 0)]


def of_length(row: dict[str, Any], tokenizer: Any) -> int:
    """Tokens of a pair."""
    text = TEMPLATE.prompt(row["question"]) + TEMPLATE.completion(row["answer"]) + tokenizer.eos_token
    return len(tokenizer(text)["input_ids"])


@pytest.mark.parametrize("epochs", [1, 0.5])
@pytest.mark.parametrize("packing", [False, True])
def test_every_step_has_a_token_to_learn_from(
    base_model: Path, pairs_manifest: Path, packing: bool, epochs: float
) -> None:
    """Pairs whose answer does not fit in max_length are in no step, and are counted."""
    tokenizer = load_tokenizer(base_model.parent / "model")
    rows = json_rows(pairs_manifest)
    length = sorted(of_length({**row, "question": "x"}, tokenizer) for row in rows)[len(rows) // 2]
    settings = {**SETTINGS, "max_length": length, "batch_size": 1, "packing": packing, "epochs": epochs}
    found = Batches(pairs_manifest, tokenizer, TrainSettings.model_validate(settings), 2)
    without = {row["id"] for row in rows} - {row["id"] for row in fit_pairs(rows, TEMPLATE, tokenizer, length).rows}
    assert 0 < len(without) < len(rows) and found.steps == max(1, round(epochs * (len(rows) - len(without))))
    for step in range(1, found.steps + 1):
        targets = [part[1] for rank in range(2) for part in found.micro_batches(step, rank)]
        assert sum(int((part != IGNORE).sum()) for part in targets) > 0
        assert not without & set(found.ids(step))
    assert found.count_cuts().left_out == len(without) and found.count_cuts().pairs == found.pairs + len(without)


@pytest.mark.parametrize("length", [8, 32, 48, 64, 10_000])
def test_pairs_that_are_cut_are_counted(base_model: Path, pairs_manifest: Path, length: int) -> None:
    tokenizer = load_tokenizer(base_model.parent / "model")
    rows = json_rows(pairs_manifest)
    made = Batches(pairs_manifest, tokenizer, TrainSettings.model_validate({**SETTINGS, "max_length": length}), 1)
    found, heldout = made.count_cuts(), cut_counts(fit_pairs(rows[:1], TEMPLATE, tokenizer, 10_000))
    fit = fit_pairs(rows, TEMPLATE, tokenizer, length)
    long = sum(of_length(row, tokenizer) > length for row in rows)
    assert (found.pairs, found.cut + found.left_out) == (len(rows), long) and found.left_out == len(rows) - len(
        fit.rows
    )
    notes = report_notes(found, heldout, length, "middle")
    assert bool(notes) == bool(cuts_summary(found, heldout)) == (long > 0)
    assert not notes or f"{found.cut:,} of {len(rows):,} training pairs, and in 0 of 1 held-out pairs" in notes[0]
    assert ("are left out" in " ".join(notes)) == (found.left_out > 0)
    assert heldout == Cuts(1, 0, 0)
    if length == 8:  # less than a prompt's own words
        with pytest.raises(
            InputError, match=r"finetune\.train\.max_length is 8 tokens: of none of the .* the answer fits"
        ):
            check_answers(found, length)
    else:
        check_answers(found, length)


def test_in_less_than_an_epoch_the_pairs_that_are_trained_on_are_counted(
    base_model: Path, pairs_manifest: Path
) -> None:
    tokenizer = load_tokenizer(base_model.parent / "model")
    made = Batches(
        pairs_manifest, tokenizer, TrainSettings.model_validate({**SETTINGS, "epochs": 0.1, "max_length": 32}), 1
    )
    some = [made.rows[number] for step in range(1, made.steps + 1) for number in made.step_indices(step)]
    every = fit_pairs(json_rows(pairs_manifest), TEMPLATE, tokenizer, 32)
    cut = {row["id"] for row, flag in zip(every.rows, every.cut, strict=True) if flag}
    assert len(some) == made.pairs < len(made.rows) and every.left_out > 0
    assert made.count_cuts() == Cuts(len(some) + every.left_out, sum(row["id"] in cut for row in some), every.left_out)


@given(st.lists(st.tuples(st.integers(2, 30), st.integers(0, 30)), max_size=40), st.integers(30, 60), st.integers(1, 5))
def test_packed_rows_hold_every_pair_once_and_apart(sizes: list[tuple[int, int]], length: int, at_once: int) -> None:
    """Each pair's inputs, scored targets and positions stand together, no row is too long, and what is left over does not count."""
    some = [
        (np.arange(1, size + 1) + 100 * number, min(scored, size - 1), 0) for number, (size, scored) in enumerate(sizes)
    ]
    packed_rows = pack_pairs(some, length)
    assert all(sum(len(ids) for ids, *_ in row) <= length for row in packed_rows)
    found = []
    for start in range(0, max(1, len(packed_rows)), at_once):
        inputs, targets, places = (part.numpy() for part in packed_micro_batch(packed_rows[start : start + at_once], 0))
        assert inputs.shape == targets.shape == places.shape
        for row in range(len(inputs)):
            begins = [at for at in range(inputs.shape[1]) if places[row, at] == 0]
            for at, to in zip(begins, [*begins[1:], inputs.shape[1]], strict=True):
                assert list(places[row, at:to]) == list(range(to - at))
                if inputs[row, at]:
                    found.append((list(inputs[row, at:to]), list(targets[row, at:to])))
                else:
                    assert (targets[row, at:to] == IGNORE).all()
    expected = [
        ([*ids[:-1]], [*[IGNORE] * (len(ids) - 1 - scored), *ids[len(ids) - scored :]]) for ids, scored, _ in some
    ]
    assert sorted(found) == sorted((list(map(int, a)), list(map(int, b))) for a, b in expected)


def test_pairs_of_some_patterns_and_files(pairs_manifest: Path) -> None:
    """Those alone; one that gave none is named with those that did."""
    known = json.loads(pairs_manifest.read_text())["summary"]["by_source"]
    (name,) = known
    every, _ = read_selected_pairs(pairs_manifest, "train", [])
    assert read_selected_pairs(pairs_manifest, "train", [name])[0] == every and len(every) == known[name]["train"]
    with pytest.raises(
        InputError, match=f"pairs_of: finetune.pairs has no pair of 'other.csv' to train on; it has those of '{name}'"
    ):
        read_selected_pairs(pairs_manifest, "heldout", [name, "other.csv"])
