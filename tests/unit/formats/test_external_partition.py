"""Rows come back in their part and order, from memory or from files; ranges of a hash cover all hashes, in order."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.formats.external_partition import Spill, count_parts, part_by_hash

PIECES = st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99)), max_size=9), max_size=9)


@settings(deadline=None)
@given(PIECES, st.integers(1, 400))
def test_every_part_in_the_order_it_came(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[list[tuple[int, int]]], held: int
) -> None:
    folder: Path = tmp_path_factory.mktemp("spill")
    spill = Spill(folder, 5, np.int64, held)
    for piece in pieces:
        parts, rows = np.array(piece, np.int64).reshape(-1, 2).T
        spill.add(parts, rows)
    everything = [row for piece in pieces for row in piece]
    for part in range(5):
        assert spill.part(part).tolist() == [row for number, row in everything if number == part]
    assert bool(list(folder.iterdir())) == (8 * len(everything) > held)


@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(1, 5000))
def test_ranges_of_hashes(hashes: list[int], parts: int) -> None:
    found = part_by_hash(np.array(sorted(hashes), np.uint64), parts).tolist()
    assert found == sorted(found) and all(0 <= part < parts for part in found)
    assert [part_by_hash(np.array([value], np.uint64), parts)[0] for value in (0, 2**64 - 1)] == [0, parts - 1]


def test_number_of_ranges() -> None:
    assert [count_parts(rows, 10) for rows in (0, 1, 10, 11, 100)] == [1, 1, 1, 2, 10]
