"""Spans: what is left of a text, and where a place in it lies in the original."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.core.manifest import ManifestError
from crawl2llm.formats.spans import EditedText, Span, count_spans, merge_spans, read


def test_removed_and_replaced() -> None:
    made = EditedText("call 555-1234 now, or 555-9999", [Span(22, 30, "<PHONE>"), Span(5, 13, "<PHONE>"), Span(13, 17)])
    assert made.text == "call <PHONE>, or <PHONE>"
    assert made.original_range(0, 4) == (0, 4) and made.original_range(5, 12) == (5, 13)
    assert made.original_range(7, 9) == (5, 13), "a place inside a replacement is the whole of it"
    assert made.original_range(12, 16) == (17, 21)


def test_a_later_filter_that_removes_the_line_of_an_earlier_edit() -> None:
    """The edit inside is not applied twice, and the line is gone."""
    text = "keep\nmail a@b.org\nkeep"
    earlier = EditedText(text, [Span(10, 17, "<EMAIL>", "email", "pii")])
    start = earlier.text.index("mail")
    line = earlier.original_range(start, earlier.text.index("keep", start))
    both = [*earlier.spans, Span(*line, "", "line", "lines")]
    assert EditedText(text, both).text == "keep\nkeep"
    assert count_spans(both, text) == {("lines", "line"): {"documents": 1, "spans": 1, "bytes": 13}}


def test_bytes_are_those_of_utf8() -> None:
    assert count_spans([Span(1, 2, "e", "r", "s")], "né")[("s", "r")]["bytes"] == 1


@st.composite
def edits(draw: st.DrawFn, size: int) -> list[Span]:
    """Disjoint spans of a text, as one filter makes them."""
    cuts = sorted(draw(st.sets(st.integers(0, size), max_size=8)))
    pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
    return [Span(start, end, draw(st.text("xyz", max_size=3)), "r", "s") for start, end in pairs]


@given(st.data())
def test_two_filters_one_after_the_other_are_both_at_once(data: st.DataObject) -> None:
    """What a second filter finds in edited text, turned back, gives with the first's spans what it saw; nothing overlaps."""
    text = data.draw(st.text("abcd", max_size=30))
    first = EditedText(text, data.draw(edits(len(text))))
    wanted = data.draw(edits(len(first.text)))
    turned = [Span(*first.original_range(span.start, span.end), span.replacement, "r", "t") for span in wanted]
    both = merge_spans([*first.spans, *turned])
    assert all(one.end <= other.start for one, other in pairwise(both))
    for span, (start, end) in zip(wanted, ((one.start, one.end) for one in turned), strict=True):
        assert first.text[span.start : span.end] in EditedText(text, first.spans).text
        assert 0 <= start <= end <= len(text)
    whole = [span for span in wanted if not cuts_a_replacement(first, span)]
    if whole == wanted:
        assert EditedText(text, [*first.spans, *turned]).text == EditedText(first.text, wanted).text


def cuts_a_replacement(first: EditedText, span: Span) -> bool:
    """Whether a place begins or ends inside a replacement, or where something was removed."""
    for begin, of in zip(first.starts, first.spans, strict=True):
        end = begin + len(of.replacement)
        if begin <= span.start <= end or begin <= span.end <= end:
            return not (span.start < begin and end < span.end)
    return False


@given(st.data())
def test_what_is_kept_lies_where_it_says(data: st.DataObject) -> None:
    text = data.draw(st.text("abcdefgh", max_size=30))
    made = EditedText(text, data.draw(edits(len(text))))
    inside = {
        at
        for begin, span in zip(made.starts, made.spans, strict=True)
        for at in range(begin, begin + len(span.replacement))
    }
    for at in set(range(len(made.text))) - inside:
        start, end = made.original_range(at, at + 1)
        assert text[start:end] == made.text[at]


def test_edits_of_other_shards_alone_are_refused(tmp_path: Path) -> None:
    """The texts would be read without them."""
    with pytest.raises(ManifestError, match=r"--edits lacks .*00001\.manifest\.json"):
        read([tmp_path / "lines/score/00000.manifest.json"], "00001")
