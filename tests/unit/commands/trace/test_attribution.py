"""Runs of words that a text and a document share: as a plain loop finds them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.commands.trace import attribution
from crawl2llm.commands.trace.attribution import TextQuery, documents_of_files, search_documents
from crawl2llm.filters.decontaminate.words import split_words
from crawl2llm.formats.documents import DOCUMENT, Writer
from tests.unit import making

TEXT = st.lists(st.sampled_from(["a", "b", "c", "D!", "e"]), max_size=25).map(" ".join)


def brute(text: str, other: str, n: int) -> set[tuple[int, int, int]]:
    """Every run of n words or more that can be made longer at neither end."""
    one, two = split_words(text), split_words(other)
    found = set()
    for here in range(len(one)):
        for there in range(len(two)):
            if here and there and one[here - 1] == two[there - 1]:
                continue
            length = 0
            while here + length < len(one) and there + length < len(two) and one[here + length] == two[there + length]:
                length += 1
            if length >= n:
                found.add((here, there, length))
    return found


@given(TEXT, TEXT, st.integers(2, 6))
def test_runs_are_those_of_a_plain_loop(text: str, other: str, n: int) -> None:
    found = list(TextQuery(text, n).shared_runs(other))
    assert len(found) == len(set(found)) and set(found) == brute(text, other, n)


def test_the_longest_runs_with_their_places(tmp_path: Path) -> None:
    texts = {
        "near": "He said: THE QUICK brown fox, jumps over it.",
        "far": "A quick brown fox. The quick brown fox jumps!",
    }
    path = tmp_path / "00000.parquet"
    with Writer(path, DOCUMENT) as writer:
        for name, text in texts.items():
            writer.add(making.document(name, text))
    found, cover = search_documents(TextQuery("So the quick brown fox jumps over a dog", 3), documents_of_files([path]))
    said = [(one.number, one.id, texts[one.id][one.start : one.end]) for one in found]
    assert said == [
        (6, "near", "THE QUICK brown fox, jumps over"),
        (5, "far", "The quick brown fox jumps"),
        (3, "far", "quick brown fox"),
    ]
    assert cover.tolist() == [0, 6, 6, 6, 6, 6, 6, 0, 0]
    assert [
        one.number
        for one in search_documents(TextQuery("the quick brown fox jumps over", 3), documents_of_files([path]), most=1)[
            0
        ]
    ] == [6]


def test_a_text_that_shares_nothing_is_said_in_words() -> None:
    told = {"covered": 0, "words": 1, "longest": 0, "not_read": 0, "matches": []}
    (line,) = attribution.attribution_lines(told, 8)
    assert line.startswith("none of the 1 word is in the training text in runs of 8 words or more")
    first, longest = attribution.attribution_lines({**told, "covered": 9, "words": 12, "longest": 9}, 8)
    assert first.startswith("9 of 12 words (75%) are in") and longest == "the longest run has 9 words"
