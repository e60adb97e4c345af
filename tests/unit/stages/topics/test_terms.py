"""Terms in scripts with and without spaces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.topics.terms import LONGEST, terms


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The ship's CAPTAIN, 42 years a sailor!", ["the", "ship's", "captain", "years", "sailor"]),
        ("北京大学", ["北京", "京大", "大学"]),
        ("在 Linux 上", ["linux"]),  # what is not beside it is no pair
        ("パン屋。", ["パン", "ン屋"]),
        ("ΧΏΡΑΣ", ["χώρας"]),
        ("กิน", ["กิน"]),  # a sign with its mark, and the next
        ("x" * (LONGEST + 1), []),
        ("3.14 -- !? 2024", []),
        ("", []),
    ],
)
def test_terms(text: str, wanted: list[str]) -> None:
    assert list(terms(text)) == wanted


@given(st.text())
def test_any_text_has_terms_that_can_be_counted(text: str) -> None:
    assert all(term and not term.isspace() and term == term.strip() for term in terms(text))
