"""The choice of keepers against a plain reference, whole and one connected component after the other."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.filters.dedup.components import EDGE, choose_by_component, choose_greedily, component_labels

PAIRS = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19), st.sampled_from([0.8, 0.9, 1.0])), max_size=40)


def made(edges: list[tuple[int, int, float]], rng: random.Random) -> np.ndarray:
    """Each pair of different documents once, in any order."""
    unique = [
        (max(a, b), min(a, b), s) for (a, b), s in {(max(a, b), min(a, b)): s for a, b, s in edges if a != b}.items()
    ]
    rng.shuffle(unique)
    return np.array(unique, EDGE)


def reference(pairs: np.ndarray, nodes: int) -> list[tuple[float, int] | None]:
    """By the definition: (−similarity, keeper) of every document that goes, None of one that stays."""
    found: list[tuple[float, int] | None] = []
    for node in range(nodes):
        best = [(-s, high) for low, high, s in pairs.tolist() if low == node and found[high] is None]
        found.append(min(best) if best else None)
    return found


def result(keeper: np.ndarray, value: np.ndarray) -> list[tuple[float, int] | None]:
    return [None if kept < 0 else (-s, kept) for kept, s in zip(keeper.tolist(), value.tolist(), strict=True)]


@settings(deadline=None)
@given(PAIRS, st.randoms())
def test_greedy_is_the_first_maximal_independent_set(edges: list[tuple[int, int, float]], rng: random.Random) -> None:
    pairs = made(edges, rng)
    assert result(*choose_greedily(pairs["low"], pairs["high"], pairs["similarity"], 20)) == reference(pairs, 20)


@settings(deadline=None)
@given(PAIRS, st.randoms(), st.integers(1, 9), st.integers(1, 9))
def test_by_component_is_the_same(
    tmp_path_factory: Any, edges: list[tuple[int, int, float]], rng: random.Random, held: int, piece: int
) -> None:
    pairs = made(edges, rng)

    def read() -> Iterator[np.ndarray]:
        for start in range(0, len(pairs), piece):
            yield pairs[start : start + piece]

    folder: Path = tmp_path_factory.mktemp("pairs")
    assert result(*choose_by_component(read, len(pairs), 20, folder, held)) == reference(pairs, 20)


def test_labels_of_pieces_are_those_of_the_whole() -> None:
    pairs = np.array([(1, 0, 1), (3, 2, 1), (5, 4, 1), (4, 3, 1)], EDGE)
    found = component_labels((pairs[at : at + 1] for at in range(4)), 7).tolist()
    assert found[0] == found[1] and found[2] == found[3] == found[4] == found[5]
    assert len({found[0], found[2], found[6]}) == 3
