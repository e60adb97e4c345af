"""Repeated n-grams against the definition, written out plainly."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.filters.heuristics.repetition import DUPLICATE, TOP, ngram_characters


def plainly(tokens: list[str], scale: int) -> dict[int, int]:
    """The definition: every n-gram as a tuple, one pass for each n."""
    found = {}
    for n in (*TOP, *DUPLICATE):
        length = n * scale
        grams = [tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1)]
        if n in TOP:
            gram, times = Counter(grams).most_common(1)[0] if grams else ((), 0)
            found[n] = (sum(map(len, gram)) + (n - 1 if scale == 1 and gram else 0)) * times
            continue
        seen, i, characters = set(), 0, 0
        while i < len(grams):
            if grams[i] in seen:
                characters += sum(map(len, grams[i]))
                i += length
            else:
                seen.add(grams[i])
                i += 1
        found[n] = characters
    return found


@given(
    st.one_of(
        st.lists(st.sampled_from(["a", "bb", "ccc"]), max_size=120),
        st.lists(st.sampled_from(["a", "bb", "ccc", "dddd", "ee", "f", "ggg"]), max_size=60).map(
            lambda words: words * 2
        ),
        st.lists(st.text("xyz", min_size=1, max_size=3), max_size=60),
    ),
    st.sampled_from([1, 2, 3]),
)
def test_as_the_definition(tokens: list[str], scale: int) -> None:
    assert ngram_characters(tokens, Counter(tokens), scale) == plainly(tokens, scale)


@pytest.mark.parametrize("tokens", [[], ["a"], ["a", "b"], ["a"] * 500])
def test_edges(tokens: list[str]) -> None:
    assert ngram_characters(tokens, Counter(tokens)) == plainly(tokens, 1)
