"""What differs between two sequences: always a way from one to the other, and difflib's where they are short."""

from __future__ import annotations

import difflib

from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.text import opcodes as compared
from crawl2llm.text.opcodes import opcodes

WORDS = st.lists(st.sampled_from("abc"), max_size=12)


def made(a: list[str], b: list[str]) -> list[str]:
    """`b`, as the opcodes make it of `a`."""
    out, at, to = list[str](), 0, 0
    for kind, i1, i2, j1, j2 in opcodes(a, b):
        assert (i1, j1) == (at, to)
        assert (a[i1:i2] == b[j1:j2]) == (kind == "equal")
        out, at, to = [*out, *(a[i1:i2] if kind == "equal" else b[j1:j2])], i2, j2
    assert (at, to) == (len(a), len(b))
    return out


@given(WORDS, WORDS, st.integers(1, 60))
def test_they_make_one_of_the_other_also_in_pieces(a: list[str], b: list[str], times: int) -> None:
    assert made(a * times, b * times) == b * times


@given(WORDS, WORDS)
def test_short_ones_are_difflibs(a: list[str], b: list[str]) -> None:
    assert list(opcodes(a, b)) == difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()


def test_a_word_that_is_missing_moves_all_that_follow() -> None:
    words = [f"w{number}" for number in range(5 * compared.LARGEST)]
    found = list(opcodes(words, words[:3] + words[4:]))
    assert [one for one in found if one[0] != "equal"] == [("delete", 3, 4, 3, 3)]
