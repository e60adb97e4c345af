"""Lines and paragraphs as they are compared, and as they are taken out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.formats.spans import EditedText
from crawl2llm.text.blocks import LINE, PARAGRAPH, compared_blocks, compared_lines, removal_range, removal_spans

TEXT = st.text(alphabet="aB1. \n\tÄ。ß\u00a0", max_size=40)


def test_as_they_are_compared() -> None:
    assert compared_lines("  Hello, World! 12\n\n***\n«Ünter» 3½") == [b"hello world 00", b"", b"", "ünter 0½".encode()]
    assert compared_lines("It's 5 o'clock") == [b"its 0 oclock"] == compared_lines("ITS 7 OCLOCK…")


@given(TEXT)
def test_both_ways_of_a_plain_text_are_one(text: str) -> None:
    """ASCII is compared by bytes; the same line is the same beside others that are not ASCII."""
    assert compared_lines(text + "\nä")[:-1] == [found for line in text.split("\n") for found in compared_lines(line)]


def test_paragraphs() -> None:
    assert compared_blocks("A b\nC.\n \n\nD\n\n***\n", PARAGRAPH) == [b"a b\nc", b"d", b""]


def test_taken_out() -> None:
    def left(text: str, *gone: int, by: str = LINE) -> str:
        found = removal_spans(text, gone, "rule", by)
        assert all(one.end <= other.start for one, other in pairwise(found))
        return EditedText(text, found).text

    assert left("A\nB\nC", 1) == "A\nC"
    assert left("A\nB\n\nC", 1) == "A\n\nC" == left("A\n\nB\nC", 2) == left("A\n\nB\n\nC", 2)
    assert left("A\nMenu", 1) == "A" and left("A\nMenu\n", 1) == "A\n" and left("Menu", 0) == ""
    assert left("A\n  B\n    C", 1) == "A\n    C"
    assert left("A\nB\n\nC\nD", 1, 3) == "A\nD" and left("B\nA\nB", 0, 2) == "A"
    assert left("A\nB\n\nC\nD\n\nE", 1, by=PARAGRAPH) == "A\nB\n\nE"


@given(TEXT, st.data())
def test_what_stays_is_every_other_block(text: str, data: st.DataObject) -> None:
    for by in (LINE, PARAGRAPH):
        there = [number for number, block in enumerate(compared_blocks(text, by)) if block]
        gone = [number for number in there if data.draw(st.booleans())]
        left = EditedText(text, removal_spans(text, gone, "rule", by)).text
        assert [line.strip() for line in left.split("\n") if line.strip()] == [
            line.strip()
            for number, (first, last) in enumerate(places(text, by))
            if number not in gone
            for line in text.split("\n")[first:last]
            if line.strip()
        ]


def places(text: str, by: str) -> list[tuple[int, int]]:
    from crawl2llm.text.blocks import _paragraph_ranges

    return (
        _paragraph_ranges(text) if by == PARAGRAPH else [(number, number + 1) for number in range(text.count("\n") + 1)]
    )


def test_around() -> None:
    def left(text: str) -> str:
        start = text.index("[")
        begin, end = removal_range(text, start, text.index("]") + 1)
        return text[:begin] + text[end:]

    assert left("x [gone] y") == "x y" and left("x [gone]\n\ny") == "x\n\ny" and left("x\n\n[gone] y") == "x\n\ny"
    assert left("x [gone]") == "x" and left("[gone] y") == "y" and left("[gone]") == ""
    assert left("x [gone]\n") == "x\n"
