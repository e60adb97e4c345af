"""Phrases of messages."""

from __future__ import annotations

from crawl2llm.core import phrases


def test_and_more_counts_the_names_that_are_left_out() -> None:
    assert phrases.and_more(["a", "b"], 2) == "a, b"
    assert phrases.and_more(iter("abc"), 2) == "a, b and 1 more"
    assert phrases.and_more(map(str, range(1003)), 2) == "0, 1 and 1,001 more"
    assert phrases.and_more("abc", 1, "variants") == "a and 2 more variants"
    assert phrases.and_more([], 2) == ""


def test_first_few_ends_in_a_sign_if_there_are_more() -> None:
    assert phrases.first_few("abc", 3) == "a, b, c"
    assert phrases.first_few("abcd", 3) == "a, b, c, …"


def test_join_with_and() -> None:
    assert [phrases.join_with_and(list(names)) for names in ("", "a", "ab", "abc")] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
