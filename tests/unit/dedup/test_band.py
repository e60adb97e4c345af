"""Candidate pairs: who is paired, what is cut, in which order they are written."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.dedup.band import Buckets
from scripts.dedup.tables import priority, repeated, same
from scripts.workflow.errors import InputError
from scripts.workflow.manifest import Manifest

ROWS = st.lists(st.tuples(st.sampled_from("01"), st.integers(0, 3), st.integers(0, 3)), max_size=30)


@settings(deadline=None)
@given(ROWS, st.integers(1, 40))
def test_pairs_of_a_bucket(rows: list[tuple[str, int, int]], most: int) -> None:
    documents = [(shard, f"{n:02d}", bucket, rank) for n, (shard, bucket, rank) in enumerate(rows)]
    table = pa.table(
        {
            "shard": pa.array([row[0] for row in documents], pa.string()),
            "id": pa.array([row[1] for row in documents], pa.string()),
            "hash": pa.array([row[2] for row in documents], pa.uint64()),
            "priority": pa.array([row[3] for row in documents], pa.int64()),
        }
    )
    buckets = Buckets(table, most)
    found = [pair for shard, at in buckets.by_shard() for pair in buckets.pairs(at).to_pylist()]
    assert [pair["shard_low"] for pair in found] == sorted(pair["shard_low"] for pair in found)
    expected, cut = set(), 0
    for bucket in range(4):
        members = sorted((rank, name) for _, name, b, rank in documents if b == bucket)
        for place, (_, low) in enumerate(members):
            expected |= {(low, high) for _, high in members[: min(place, most)]}
            cut += max(place - most, 0)
    assert sorted((pair["id_low"], pair["id_high"]) for pair in found) == sorted(expected)
    assert buckets.cut.sum() == cut
    home = {name: (shard, rank) for shard, name, _, rank in documents}
    for pair in found:
        assert (pair["shard_low"], pair["priority_low"]) == home[pair["id_low"]]
        assert (pair["shard_high"], pair["priority_high"]) == home[pair["id_high"]]


def test_priority_is_curated_then_words() -> None:
    curated = np.array([False, False, True, True])
    words = np.array([10, 2_000_000, 1, 3])
    assert np.argsort(priority(curated, words)).tolist() == [3, 2, 1, 0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 9)))
def test_repeated(values: list[int]) -> None:
    expected = [value for value, run in itertools.groupby(sorted(values)) if len(list(run)) > 1]
    assert repeated(np.array(values, np.uint64)).tolist() == expected


def test_signatures_of_two_settings_are_refused() -> None:
    made = [Manifest("dedup.signature", "x", summary={"bands": bands}) for bands in (14, 20)]
    with pytest.raises(InputError, match=r"disagree on bands: \[14, 20\]"):
        same(made, "bands")
