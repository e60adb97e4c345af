"""Rows of the same key are one row with the counts added up, whatever their order."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.formats.aggregate import merge_rows

ROW = np.dtype([("hash", "u8"), ("key", "u8"), ("count", "i8"), ("at", "i8")])
SMALL = st.integers(0, 3)


@given(st.lists(st.tuples(SMALL, SMALL, st.integers(1, 9), SMALL), max_size=30))
def test_as_a_counter(rows: list[tuple[int, int, int, int]]) -> None:
    made = np.array(rows, ROW)
    wanted: Counter[tuple[int, int]] = Counter()
    for one, other, count, _ in rows:
        wanted[one, other] += count
    found = merge_rows(made, ["hash", "key"], order=["at"])
    assert [(one, other, count) for one, other, count, _ in found.tolist()] == [
        (*key, count) for key, count in sorted(wanted.items())
    ]
    first = {key: min(at for one, other, _, at in rows if (one, other) == key) for key in wanted}
    assert found["at"].tolist() == [first[key] for key in sorted(wanted)]
    by_hash = merge_rows(made, ["hash"])
    assert by_hash["hash"].tolist() == sorted({one for one, *_ in rows})
    assert by_hash["count"].sum() == made["count"].sum()
