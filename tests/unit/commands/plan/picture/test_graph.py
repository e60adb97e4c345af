"""The transitive reduction of what a picture shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.commands.plan.picture.graph import Edge, keys_above, reduce_edges

# Edges only from a smaller number to a larger one: no circle.
EDGES = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda pair: pair[0] < pair[1]), max_size=40
).map(lambda pairs: [(str(one), str(other)) for one, other in pairs])


@given(EDGES)
def test_what_is_reached_stays_and_no_edge_is_too_many(edges: list[Edge]) -> None:
    kept = reduce_edges(edges)
    assert set(kept) <= set(edges) and len(set(kept)) == len(kept)
    assert keys_above(kept) == keys_above(edges)
    for edge in kept:
        assert keys_above([other for other in kept if other != edge]) != keys_above(kept)


def test_an_edge_to_what_is_reached_anyway_is_left_out() -> None:
    assert reduce_edges([("a", "b"), ("b", "c"), ("a", "c")]) == (("a", "b"), ("b", "c"))


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="reads from itself"):
        reduce_edges([("a", "b"), ("b", "a")])
