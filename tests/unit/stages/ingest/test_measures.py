"""The compiled measures of a page's blocks are those of the plain description (plain_measures.py), on any page."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.stages.ingest import measures
from crawl2llm.stages.ingest.markup import Markup, parse_page, read_markup
from tests.unit.stages.ingest import plain_measures
from tests.unit.stages.ingest.test_blocks import PAGE, PIECE, reference

FIRST, SECOND = measures.measure_names()


def compiled(markup: Markup, scores: list[int]) -> dict[str, list[int]]:
    """All measures of each block, by their names."""
    page = measures.compiled_page(markup)
    rows = np.full((len(FIRST) + len(SECOND), page.count), -30_000, np.int16)
    number_of = {name: row for row, name in enumerate(FIRST + SECOND)}
    page.first(number_of, rows)
    page.second(np.array(scores, np.int64), number_of, rows)
    return {name: rows[row].tolist() for name, row in number_of.items()}


def plain(markup: Markup, scores: list[int]) -> dict[str, list[int]]:
    page = plain_measures.Page(markup)
    found = page.first() | page.second(np.array(scores, np.int64))
    return {name: np.clip(row, -plain_measures.MOST, plain_measures.MOST).tolist() for name, row in found.items()}


def agree(page: str, seed: int = 0) -> None:
    markup = read_markup(parse_page(page))
    if markup.text:
        scores = np.random.default_rng(seed).integers(-1500, 1500, len(markup.text)).tolist()
        assert compiled(markup, scores) == plain(markup, scores)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECE | st.text(max_size=8), max_size=60), st.integers(0, 99))
def test_any_page(pieces: list[str], seed: int) -> None:
    agree("".join(pieces), seed)


# Makes that a weighted sum of what they are made of takes for one.
MAKES = '<section><address><section class="comment share related"><p>one</p></section><address><p>two</address>'


@pytest.mark.parametrize(
    "page",
    [
        PAGE,
        MAKES,
        reference(300),
        "<p>" + "word. " * 20_000,
        "<p>" + "x" * 20_000 + "Y.",
        "<h1>" + "a" * 90 + "<p>x" * 300,
    ],
)
def test_larger_pages(page: str) -> None:
    agree(page)


def test_no_measure_has_the_name_of_another() -> None:
    assert len(set(FIRST + SECOND)) == len(FIRST + SECOND) > 200


def test_rows_of_another_page_are_refused() -> None:
    page = measures.compiled_page(read_markup(parse_page("<p>one<p>two")))
    with pytest.raises(ValueError, match="2 blocks, and rows of 3"):
        page.first({"length": 0}, np.zeros((1, 3), np.int16))


def test_what_is_not_asked_for_is_left_out() -> None:
    page = measures.compiled_page(read_markup(parse_page("<p>one<p>three")))
    rows = np.full((2, 2), 7, np.int16)
    page.first({"length": 1}, rows)
    assert rows.tolist() == [[7, 7], [3, 5]]
