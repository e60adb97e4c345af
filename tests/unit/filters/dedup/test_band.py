"""Candidate pairs: who is paired, what is cut, and who asks for which documents."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.dedup.band import Buckets, document_part_keys
from crawl2llm.formats.document_numbers import (
    HASHED_DOCUMENT,
    common_value,
    document_priority,
    first_document,
    part_of,
    repeated_values,
)

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=30)


@settings(deadline=None)
@given(ROWS, st.integers(1, 40), st.randoms())
def test_pairs_of_a_bucket(rows: list[tuple[int, int, int]], most: int, rng: object) -> None:
    """rows: shard, hash and priority; ids are the other way round than the documents' numbers."""
    documents = [
        (bucket, rank, 99, 1000 - n, first_document(shard) + n) for n, (shard, bucket, rank) in enumerate(rows)
    ]
    rng.shuffle(documents)  # type: ignore[attr-defined]
    buckets = Buckets(np.array(documents, HASHED_DOCUMENT), most)
    found = [pair for part in buckets.candidate_pairs() for pair in part.tolist()]
    expected, cut = set(), 0
    for bucket in range(4):
        members = sorted((rank, name, document) for b, rank, _, name, document in documents if b == bucket)
        for place, (_, _, low) in enumerate(members):
            expected |= {(low, high) for _, _, high in members[: min(place, most)]}
            cut += max(place - most, 0)
    assert sorted(found) == sorted(expected)
    assert buckets.cut.sum() == cut
    assert buckets.partners.sum() == len(found)


def test_a_document_is_wanted_by_the_part_of_its_lower_partner() -> None:
    a, b, c = first_document(0) + 5, first_document(1), first_document(5) + 1
    pairs = np.array([(a, b), (c, b), (c, a)], [("low", "i8"), ("high", "i8")])
    part = part_of(pairs["low"], 4)
    keys = document_part_keys(pairs, part, 4)
    assert [divmod(key, 4) for key in keys.tolist()] == [(a, 0), (a, 1), (b, 0), (b, 1), (c, 1)]


def test_priority_is_curated_then_words() -> None:
    curated = np.array([False, False, True, True])
    words = np.array([10, 2_000_000, 1, 3])
    assert np.argsort(document_priority(curated, words)).tolist() == [3, 2, 1, 0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 9)))
def test_repeated(values: list[int]) -> None:
    expected = [value for value, run in itertools.groupby(sorted(values)) if len(list(run)) > 1]
    assert repeated_values(np.array(values, np.uint64)).tolist() == expected


def test_signatures_of_two_settings_are_refused() -> None:
    made = [Manifest("dedup.signature", "x", summary={"bands": bands}) for bands in (14, 20)]
    with pytest.raises(InputError, match=r"disagree on bands: \[14, 20\]"):
        common_value(made, "bands")
