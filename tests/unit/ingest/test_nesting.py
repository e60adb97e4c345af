"""Pages nested so deep that a parser would take minutes, and pages that only look like it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from scripts.ingest.bounds import too_hard
from scripts.ingest.markup import tokens
from scripts.ingest.nesting import attributes_at_most, open_elements, too_deep
from tests.unit.ingest.warcs import http, read, reasons, record


def refused(page: str) -> str:
    """Why a page is not given to Resiliparse's extraction, or ""; it is parsed only where `too_hard` allows it."""
    parts = tokens(page)
    if reason := too_hard(parts)[0]:
        return reason
    return "too_deep" if too_deep(HTMLTree.parse(page), len(parts) // 6, open_elements(parts)) else ""


DEEP = [
    "<div>", "<DIV class='a'>", "<div></nonsense>", "<div><table><tr><td></div>", "<b>", "<div><!-- </div> -->",
    "<div><script></div></script>", "<ul><li>", "<b><div></b>", "<span><div></span>", "<object><table><td></object>",
    "<table><td><template><div></table>", "<li><dd>", "<svg><p><div></svg>", "<span><b a={}></span>x",
    "<p><span><b><svg></b><template><p>",  # that SVG has ended
    "<p><span><svg><title><div></title><p>",  # HTML in a title of SVG
    "<table><table></i></table></mi><noscript></table>x",  # that table has ended
    "</col></table><tr><a a={}></object></button><table></span><object>",
]  # fmt: skip
BEFORE = [
    ("<!-- --!>", "<div>"),  # comments end so too
    ("<!-->", "<div>"),
    ("<svg><style/>", "<div>"),  # is not text within SVG
    ("<svg><style>", "<div>"),
    ("<svg>", "<tr>"),
    ("<svg>", "<input>"),
    ("<template><col><script><template>", "<div>"),  # the template drops the start of the script
    ("<frameset><iframe>", "<frameset>"),
]


@pytest.mark.parametrize(("before", "again"), [("", each) for each in DEEP] + BEFORE)
def test_deep(before: str, again: str) -> None:
    assert refused(before + "".join(again.replace("{}", str(number)) for number in range(20_000 // again.count("<"))))


@pytest.mark.parametrize("again", DEEP[-2:])
def test_what_an_end_tag_does_not_end(again: str) -> None:
    """Found by random search: a simulation of the parser's stack took these for shallow."""
    assert refused("".join(again.replace("{}", str(number)) for number in range(20_000)))


@pytest.mark.parametrize(
    "html",
    [
        "<div></div>" * 9000,
        "<p>words" * 20_000,
        "<ul>" + "<li>words" * 20_000 + "</ul>",
        "<ul>" + "<li><a href=x>words</a></li>" * 12_000 + "</ul>",
        "<table>" + "<tr><td>1<td>2" * 8000 + "</table>",
        "<dl>" + "<dt>term<dd>words" * 10_000 + "</dl>",
        "<table>" + "<tr><td>1</td><td>2</td></tr>" * 8000 + "</table>",
        "<table><tr><td>words<td>words</table>" * 8000,
        "<div><ul><li><p>words<li>words</ul><p>words</div>" * 5000,
        "<div><span>words</div>" * 2000,
        "<br>" * 9000,
        "<script>" + "'<div>'" * 90_000 + "</script>",
        "<!--" + "<div>" * 90_000 + "-->",
        "<select>" + "<option>x" * 10_000 + "</select>",
        "a < b " * 9000,
        "<div>" * 5000,
        "<p><font size=2>words" * 2500,
        "<p><a href=x>words</p>" * 2500,
        "<div><b>words</div>" * 2000,
        "<form><input>" * 6000,
        "<svg>" + "<path d=m1 />" * 6000 + "</svg>",
        "<svg><title>a</title><g><path></path></g></svg><p><span>words</span></p>" * 4000,
        "<svg><path d=m1 /></svg><template><p>x</p></template>" * 2000,
        "words and " * 2_000_000,
    ],
)
def test_not_deep(html: str) -> None:
    assert not refused(html)


@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 1000 + "<p>x</p>" * 20_000,
        "<div>" * 1000 + "words and " * 50_000,
        "<div>" * 1000 + "<textarea>" + "words and " * 50_000,
        "".join(f"<b {' '.join(f'a{each}=1' for each in range(20))} z={number}>" for number in range(3000)),
    ],
)
def test_the_sum_decides_not_the_greatest_depth(page: str) -> None:
    """As much text or as many nodes 1,000 deep took 5 s to 10 s; the attributes of formatting elements, each compared with each, 5 s."""
    assert refused(page) == "too_deep"


@pytest.mark.parametrize(
    "piece",
    [
        "<div>",
        "<a></b>",
        "<!--",
        "<script>",
        "<table>",
        "<div></x>",
        "<",
        "</table>",
        "<svg></div>",
        "<a b>",
        "<title>",
        "<math><iframe/><p>",
    ],
)
@pytest.mark.parametrize("end", ["", "</title"])
def test_the_time_is_in_proportion_to_the_size(piece: str, end: str) -> None:
    """A bound for a page of 2 MB that quadratic work would exceed by hours. No raw element ends in `</title`: it is looked for once."""
    begin = time.process_time()
    open_elements(tokens(piece * (2_000_000 // len(piece)) + end))
    assert time.process_time() - begin < 60


@settings(deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(["a", " ", "/", "=", '"', "'", "b", "\n"]), max_size=12))
def test_attributes_are_not_undercounted(pieces: list[str]) -> None:
    tag = "".join(pieces)
    made = HTMLTree.parse(f"<p {tag}></p>").body.first_child  # type: ignore[union-attr]
    assert made is None or len(getattr(made, "attribute_names", ())) <= attributes_at_most(tag)


NAMES = [
    "a", "p", "div", "span", "b", "font", "ul", "li", "table", "tr", "td", "caption", "object", "template", "svg", "math", "desc",
    "foreignobject", "mi", "title", "style", "select", "option", "button", "form", "x-y", "h1", "dl", "dd", "br", "hr", "input",
    "noscript", "rt", "marquee", "annotation-xml", "col", "body", "nobr", "section", "mi", "i", "script", "frameset", "tbody", "head", "em",
]  # fmt: skip
PIECES = st.sampled_from([
    *(f"<{name}>" for name in NAMES), *(f"</{name}>" for name in NAMES), "<b a={}>", "<font size={}>", "<a href={}>", "<style/>", "<x/>",
    "<script/>",
    "x", "<!-- --!>", "<!-->", "<!--", "-->",
])  # fmt: skip


def depth(tree: HTMLTree) -> int:
    """Of what is in a tree but not in templates."""
    node, here, most = tree.document, 0, 0
    while node is not None:
        if node.first_child is not None:
            node, here = node.first_child, here + 1
            most = max(most, here)
            continue
        while node is not None and node.next is None:
            node, here = node.parent, here - 1
        node = None if node is None else node.next  # an empty comment is not true
    return most


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(PIECES, max_size=3), st.lists(PIECES, min_size=1, max_size=8))
def test_no_page_is_deeper_than_its_bound(before: list[str], again: list[str]) -> None:
    """But for the body and the row that a parser makes around a cell."""
    unit = "".join(again)
    page = "".join(before) + "".join(unit.replace("{}", str(number)) for number in range(60)) + "x"
    assert depth(HTMLTree.parse(page)) <= 2 * open_elements(tokens(page)).depth + 16


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(PIECES, max_size=3), st.lists(PIECES, min_size=1, max_size=8))
def test_a_page_that_passes_is_parsed_soon(before: list[str], again: list[str]) -> None:
    """8,000 tags: work that is over its bound would take many times as long."""
    unit = "".join(again)
    many = 8000 // (unit.count("<") + 1)
    page = "".join(before) + "".join(unit.replace("{}", str(number)) for number in range(many)) + "x"
    begin = time.process_time()
    if not refused(page):
        extract_plain_text(HTMLTree.parse(page), main_content=True)
    assert time.process_time() - begin < 6


def test_such_a_page_is_counted_and_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    deep = record("response", 0, http(b"<html>" + b"<div>" * 30_000))
    text = record("response", 1, http(b"<html>" + b"<div>" * 1000 + b"words and " * 50_000))
    good = record("response", 2, http(b"<html><p>Some words of a page that is good.</p></html>"))
    path.write_bytes(deep + text + good)
    assert reasons(read(path, extractor="resiliparse")) == {"too_deep": 2, "page": 1}
