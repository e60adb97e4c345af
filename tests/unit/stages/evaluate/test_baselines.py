"""N-grams and compressors beside the models."""

from __future__ import annotations

import lzma
import math
from collections import Counter

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.evaluate import compressors
from crawl2llm.stages.evaluate.ngrams import Counts
from tests.unit.stages.finetune import tiny

EOS, VOCABULARY = 0, 7
documents = st.lists(st.lists(st.integers(1, VOCABULARY - 1), max_size=12).map(lambda ids: [*ids, EOS]), max_size=5)


def counts(found: list[list[int]], most: int = 1000) -> Counts:
    return Counts((np.array(ids) for ids in found), VOCABULARY, EOS, most)


@given(documents, st.integers(0, VOCABULARY - 1))
def test_probabilities_sum_to_one(found: list[list[int]], before: int) -> None:
    model, every = counts(found), np.arange(VOCABULARY)
    for name in ("unigram", "bigram"):
        nats = getattr(model, name)(np.full(VOCABULARY, before), every)
        assert np.exp(-nats).sum() == pytest.approx(1)


@given(documents, st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6))
def test_as_the_formula_says(found: list[list[int]], asked: list[int]) -> None:
    model = counts(found)
    single = Counter(token for ids in found for token in ids)
    pairs = Counter(pair for ids in found for pair in zip([EOS, *ids], ids, strict=False))
    once, twice = (sum(number == wanted for number in pairs.values()) for wanted in (1, 2))
    discount = once / (once + 2 * twice) if once and twice else 0.5
    total = 0.0
    for v, w in zip([EOS, *asked], asked, strict=False):
        after = {pair: number for pair, number in pairs.items() if pair[0] == v}
        p = (single[w] + 1) / (single.total() + VOCABULARY)
        if after:
            seen = sum(after.values())
            p = max(pairs[v, w] - discount, 0) / seen + discount * len(after) / seen * p
        total -= math.log(p)
    assert model.total_nats("bigram", np.array(asked)) == pytest.approx(total)


def test_no_more_tokens_than_are_wanted() -> None:
    model = counts([[1, 2, 3, 0], [4, 5, 6, 0]], most=6)
    assert (model.tokens, list(model.single)) == (6, [1, 1, 1, 1, 1, 1, 0])


def texts() -> list[bytes]:
    """Pages, as bytes; made when they are needed, which every worker that collects the tests would otherwise wait for."""
    return [text.encode() for text in tiny.pages().values()]


def test_xz() -> None:
    whole = b"".join(texts())
    packed = lzma.compress(whole, preset=9 | lzma.PRESET_EXTREME)
    assert compressors.xz_bits_per_byte(texts()) == pytest.approx(8 * len(packed) / len(whole))
    assert compressors.xz_bits_per_byte([]) is None and compressors.xz_bits_per_byte([b""]) is None


def test_zstd_with_a_dictionary() -> None:
    with_one, size = compressors.zstd_bits_per_byte(texts()[:5], texts()[5:])
    without, none = compressors.zstd_bits_per_byte(texts()[:5], [])
    alone = sum(len(zstandard.ZstdCompressor(level=19).compress(text)) for text in texts()[:5])
    assert size > 50_000 and none == 0
    assert without == pytest.approx(8 * alone / sum(map(len, texts()[:5])), rel=0.01)
    assert with_one is not None and without is not None and with_one < 0.9 * without
    assert compressors.zstd_bits_per_byte([], texts())[0] is None
