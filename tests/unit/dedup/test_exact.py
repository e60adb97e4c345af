"""dedup.exact: which of several equal texts is kept."""

import random

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.dedup.exact import halves, keepers

ROW = st.tuples(st.sampled_from("01"), st.binary(min_size=1, max_size=1), st.integers(0, 2))


@settings(deadline=None)
@given(st.lists(ROW, max_size=30), st.randoms())
def test_keepers(rows: list[tuple[str, bytes, int]], rng: random.Random) -> None:
    documents = [(shard, f"{n:02d}", text * 16, rank) for n, (shard, text, rank) in enumerate(rows)]
    best = {}
    for _, name, text, rank in documents:
        best[text] = min(best.get(text, (rank, name)), (rank, name))
    expected = sorted((shard, name, best[text][1]) for shard, name, text, rank in documents if best[text][1] != name)
    rng.shuffle(documents)
    columns = [[row[at] for row in documents] for at in range(4)]
    kinds = {"shard": pa.string(), "id": pa.string(), "text_hash": pa.binary(16), "priority": pa.int64()}
    table = pa.table(
        {name: pa.array(values, kind) for (name, kind), values in zip(kinds.items(), columns, strict=True)}
    )
    assert [tuple(row.values()) for row in keepers(table).to_pylist()] == expected


def test_halves_of_slices_and_chunks() -> None:
    values = [bytes([n]) * 8 + bytes([n + 100]) * 8 for n in range(9)]
    whole = pa.array(values, pa.binary(16))
    chunks = pa.chunked_array([whole.slice(2, 3), whole.slice(0, 1)], pa.binary(16))
    expected = [np.frombuffer(values[at], "<u8")[0] for at in (2, 3, 4, 0)]
    assert halves(chunks).tolist() == expected
