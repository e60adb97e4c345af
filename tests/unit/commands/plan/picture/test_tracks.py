"""Lines that must not lie on each other."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.commands.plan.picture.tracks import Tracks


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20), st.integers(0, 20)), max_size=30))
def test_lines_of_one_track_are_apart(lines: list[tuple[int, int, int]]) -> None:
    tracks = Tracks()
    for source, *ends in lines:
        tracks.add(str(source), *ends)
    numbers = tracks.number_tracks()
    assert numbers.keys() == tracks.spans.keys()
    for one, other in combinations(numbers, 2):
        if numbers[one] == numbers[other]:
            (low, high), (begin, end) = tracks.spans[one], tracks.spans[other]
            assert high < begin or end < low
    most = max((sum(low <= at <= high for low, high in tracks.spans.values()) for at in range(21)), default=0)
    assert max(numbers.values(), default=-1) + 1 == most, "no track is too many"


def test_the_lines_of_one_box_are_one() -> None:
    tracks = Tracks()
    tracks.add("a", 1, 3)
    tracks.add("a", 9, 7)
    tracks.add("b", 4, 5)
    assert tracks.spans["a"] == (1, 9) and tracks.number_tracks() == {"a": 0, "b": 1}
