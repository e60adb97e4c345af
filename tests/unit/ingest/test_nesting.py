"""Pages nested so deep that a parser would take minutes, and pages that only look like it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from scripts.ingest.markup import tokens
from scripts.ingest.nesting import MOST, too_deep
from tests.unit.ingest.warcs import http, read, reasons, record


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 9000,
        "<DIV class='a'>" * 9000 + "</DIV>" * 9000,
        "<div></nonsense>" * 9000,
        "<div><table><tr><td></div>" * 9000,
        "<b>" * 9000,
        "<div><!-- </div> -->" * 9000,
        "<div><script></div></script>" * 9000,
        "<ul><li>" * 9000,
        "<!-- --!>" + "<div>" * 9000,  # comments end so too
        "<!-->" + "<div>" * 9000,
        "<svg><style/>" + "<div>" * 9000,  # is not text within SVG
        "<svg><style>" + "<div>" * 9000,
        "<svg>" + "<tr>" * 9000,
        "<svg><p><div></svg>" * 9000,  # the paragraph ends SVG
        "<b><div></b>" * 9000,
        "<span><div></span>" * 9000,
        "<object><table><td></object>" * 9000,
        "<table><td><template><div></table>" * 9000,
        "<li><dd>" * 9000,
        ("<p>" + "<span>" * 10 + "<b><svg></b><template><p>") * 900,  # that SVG has ended
        ("<p>" + "<span>" * 10 + "<svg><title><div></title><p>") * 900,  # HTML in a title of SVG
        "".join(f"<span><b a={number}></span>x" for number in range(9000)),
    ],
)
def test_deep(html: str) -> None:
    assert too_deep(tokens(html))


@pytest.mark.parametrize(
    "html",
    [
        "<div></div>" * 9000,
        "<p>words" * 9000,
        "<ul>" + "<li>words" * 9000 + "</ul>",
        "<table>" + "<tr><td>1<td>2" * 9000 + "</table>",
        "<div><span>words</div>" * 9000,
        "<br>" * 9000,
        "<script>" + "'<div>'" * 9000 + "</script>",
        "<!--" + "<div>" * 9000 + "-->",
        "<select>" + "<option>x" * 9000 + "</select>",
        "a < b " * 9000,
        "<div>" * MOST,
        "<p><font size=2>words" * 9000,
        "<p><a href=x>words</p>" * 9000,
        "<div><b>words</div>" * 9000,
        "<form><input>" * 9000,
        "<svg>" + "<path d=m1 />" * 9000 + "</svg>",
        "<svg><title>a</title><g><path></path></g></svg><p><span>words" * 9000,
    ],
)
def test_not_deep(html: str) -> None:
    assert not too_deep(tokens(html))


@pytest.mark.parametrize(
    "piece", ["<div>", "<a></b>", "<!--", "<script>", "<table>", "<div></x>", "<", "</table>", "<svg></div>"]
)
def test_the_time_is_in_proportion_to_the_size(piece: str) -> None:
    """A bound for a page of 2 MB that quadratic work would exceed by hours."""
    begin = time.monotonic()
    too_deep(tokens(piece * (2_000_000 // len(piece))), most=10**9)
    assert time.monotonic() - begin < 60


NAMES = [
    "a", "p", "div", "span", "b", "font", "ul", "li", "table", "tr", "td", "caption", "object", "template", "svg", "math", "desc",
    "foreignobject", "mi", "title", "style", "select", "option", "button", "form", "x-y", "h1", "dl", "dd", "br", "hr", "input",
    "noscript", "rt", "marquee", "annotation-xml", "col", "body", "nobr", "section",
]  # fmt: skip
PIECES = st.sampled_from([
    *(f"<{name}>" for name in NAMES), *(f"</{name}>" for name in NAMES), "<b a={}>", "<font size={}>", "<a href={}>", "<style/>", "<x/>",
    "x", "<!-- --!>", "<!-->", "<!--", "-->",
])  # fmt: skip


def depth(page: str) -> int:
    """Of the tree that Resiliparse's parser makes."""
    node, here, most = HTMLTree.parse(page).document, 0, 0
    while node is not None:
        if node.first_child is not None:
            node, here = node.first_child, here + 1
            most = max(most, here)
            continue
        while node is not None and node.next is None:
            node, here = node.parent, here - 1
        node = None if node is None else node.next  # an empty comment is not true
    return most


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(PIECES, max_size=3), st.lists(PIECES, min_size=1, max_size=8))
def test_no_page_is_deeper_than_it_looks(before: list[str], again: list[str]) -> None:
    """But for elements that cannot be nested in themselves: a table may have a body, a row, a cell and an item."""
    unit = "".join(again)
    page = "".join(before) + "".join(unit.replace("{}", str(number)) for number in range(60)) + "x"
    found = depth(page)
    assert found <= 50 or too_deep(tokens(page), (found - 16) // 6)


def test_such_a_page_is_counted_and_others_are_read(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "a.warc"
    deep = record("response", 0, http(b"<html>" + b"<div>" * 30_000))
    good = record("response", 1, http(b"<html><p>Some words of a page that is good.</p></html>"))
    path.write_bytes(deep + good)
    assert reasons(read(path, extractor="resiliparse")) == {"too_deep": 1, "page": 1}
