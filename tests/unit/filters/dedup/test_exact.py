"""dedup.exact: which of several equal texts is kept."""

import random

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.filters.dedup.exact import TEXT, duplicates_with_keepers
from crawl2llm.formats.document_numbers import uint64_halves

# Both halves of the text's hash, priority, both halves of the id.
ROW = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))


@settings(deadline=None)
@given(st.lists(ROW, max_size=40), st.randoms())
def test_keepers(rows: list[tuple[int, int, int, int]], rng: random.Random) -> None:
    documents = [(hash_, more, rank, one, 50 - n, n << 32 | n) for n, (hash_, more, rank, one) in enumerate(rows)]
    best: dict[tuple[int, int], tuple[int, int, int, int]] = {}
    for hash_, more, *order in documents:
        best[hash_, more] = min(best.get((hash_, more), tuple(order)), tuple(order))
    expected = {
        (number, best[hash_, more][-1]) for hash_, more, *_, number in documents if best[hash_, more][-1] != number
    }
    rng.shuffle(documents)
    table = np.array([((h, rank, one, two, number), more) for h, more, rank, one, two, number in documents], TEXT)
    found = duplicates_with_keepers(table)
    assert set(found.tolist()) == expected and len(found) == len(expected)


def test_halves_of_slices_and_chunks() -> None:
    values = [bytes([n]) * 8 + bytes([n + 100]) * 8 for n in range(9)]
    whole = pa.array(values, pa.binary(16))
    chunks = pa.chunked_array([whole.slice(2, 3), whole.slice(0, 1)], pa.binary(16))
    expected = [(int.from_bytes(values[at][:8]), int.from_bytes(values[at][8:])) for at in (2, 3, 4, 0)]
    assert [tuple(row) for row in uint64_halves(chunks).tolist()] == expected
