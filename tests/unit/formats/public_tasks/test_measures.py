"""Accuracy, its errors over documents, and where choices are cut from their context."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from crawl2llm.formats.public_tasks.measures import (
    PER_BYTE,
    SUM,
    best_choice,
    measure_task,
    split_tokens,
    standard_error,
)
from crawl2llm.stages.tokenize.train import train_bpe, untrained_tokenizer


@pytest.fixture(scope="session")
def tokenizer(inputs: dict[str, list[Path]]) -> Tokenizer:
    return Tokenizer.from_file(str(inputs["tokenizer"][0].with_name("tokenizer.json")))


texts = st.text(st.sampled_from("the cat sat 你好 été.\n"), max_size=12)


@settings(max_examples=200)
@given(texts, st.lists(texts.filter(bool), min_size=1, max_size=4))
def test_no_byte_is_scored_for_one_choice_and_given_for_another(
    tokenizer: Tokenizer, context: str, choices: list[str]
) -> None:
    before, scored = split_tokens(lambda text: tokenizer.encode(text).ids, context, choices)
    given = tokenizer.decode(before, skip_special_tokens=False).encode() if before else b""
    for choice, ids in zip(choices, scored, strict=True):
        assert ids, "something is scored"
        assert tokenizer.decode([*before, *ids], skip_special_tokens=False) == context + choice
    assert len(given) <= len(context.encode()) + 3  # a character that is cut decodes to a replacement


def test_a_token_over_the_boundary_is_scored_for_all_choices() -> None:
    """` the` is one token, ` ` and a line's end are two: the space is scored in both."""
    tokenizer = train_bpe(iter(["in the", "on the"] * 9), untrained_tokenizer(0), 300)
    assert tokenizer.encode("in the").tokens == ["in", "Ġthe"]
    before, (one, two) = split_tokens(lambda text: tokenizer.encode(text).ids, "in ", ["the", "\n"])
    assert tokenizer.decode(before) == "in" and tokenizer.decode(one) == " the" and tokenizer.decode(two) == " \n"


def test_best() -> None:
    assert best_choice([-4.0, -3.0], ["long text", "text"], SUM) == 1
    assert best_choice([-4.0, -3.0], ["long text", "text"], PER_BYTE) == 0
    assert best_choice([-3.0, -3.0], ["a", "b"], SUM) == 0


def test_errors_over_documents() -> None:
    """Items of a document that all go the same way count as one: the error is that of so many documents, √(p(1−p)/n)."""
    drawn = np.random.default_rng(1)
    right = np.repeat(drawn.random(100) < 0.5, 10)
    together, alone = [f"d{at // 10}" for at in range(1000)], [f"d{at}" for at in range(1000)]
    assert standard_error(right, together, 0, "x") == pytest.approx(0.05, rel=0.15)
    assert standard_error(right, alone, 0, "x") == pytest.approx(0.0158, rel=0.15)
    assert standard_error(right, together, 0, "x") == standard_error(right, together, 0, "x")
    assert standard_error(right[:5], ["one"] * 5, 0, "x") is None


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.floats(-9, 0), min_size=4, max_size=4)), min_size=2, max_size=30)
)
def test_measured(rows: list[tuple[int, list[float]]]) -> None:
    items = [
        {"id": str(at), "document": str(at % 3), "choices": ["a", "b", "c", "d"], "gold": gold}
        for at, (gold, _) in enumerate(rows)
    ]
    found, lines = measure_task("next_word", items, [nats for _, nats in rows], 0)
    share = sum(nats.index(max(nats)) == gold for gold, nats in rows) / len(rows)
    assert found["accuracy"] == found["acc"] == found["acc_norm"] == pytest.approx(share, abs=1e-6)
    assert found["chance"] == 0.25 and found["centered"] == pytest.approx((share - 0.25) / 0.75, abs=2e-6)
    assert [line["right"] for line in lines] == [
        line["chosen"] == item["gold"] for line, item in zip(lines, items, strict=True)
    ]
