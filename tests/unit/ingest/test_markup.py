"""Blocks, elements and links of pages, whole and broken."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from scripts.ingest import render
from scripts.ingest.head import attributes_of, head
from scripts.ingest.markup import Markup, read, tokens
from scripts.ingest.tags import BIT, BLOCKS, HIDDEN, said


def of(page: str) -> Markup:
    return read(tokens(page))


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("a<p>b</p>c", ["a", "b", "c"]),
        ("<p>one <b>two</b> <a href=x>three</a>\n  four", ["one two three four"]),
        ("<p>a<br>b<br><br>c", ["a\nb", "c"]),
        ("<p>a &amp; b &lt;c&gt; &#x41;", ["a & b <c> A"]),
        ("<pre>a\n  b</pre>", ["a\n  b"]),
        ("<script>'<p>x'</script><style>p</style><!-- <p>x -->a<svg><text>x</text></svg>", ["a"]),
        ("<!-->a<!--->b<!---->c<!-- x --!> -->d", ["abc -->d"]),
        ("a < b <p>c <> d", ["a < b", "c <> d"]),
        ("<p title='a > b'>c<p title=it's>d<p x=\"", ["c", "d"]),
        ("<P CLASS=x>a</P><Div>b</dIV>", ["a", "b"]),
        ("a<select><option>x</select>b", ["a", "b"]),
        ("<x-y>a</x-y>b", ["a", "b"]),
        ("a</nothing>b</p>c", ["ab", "c"]),
        ("<textarea><p>x</textarea>a<title>x</title>", ["a"]),
        ("<script>x", []),
        ("a<!-- b --!>c", ["ac"]),
        ("a<!-- b --! >c-->d", ["ad"]),
        ("<svg><style/><title/><path/></svg>a", ["a"]),
        ("a<math><mi>b</mi><title a='b=c'/></math>c", ["a", "b", "c"]),
        ("<svg><title a=b/>x</title></svg>a", ["a"]),  # the slash is the value's
        ("<svg><foreignObject><style/>x</style></foreignObject></svg>a", ["a"]),  # HTML again
        ("a<title/>x</title>b", ["ab"]),
        ("a<svg/><style/>x</style>b", ["ab"]),
        ("<svg><font><style/></font></svg>tail<p>more", ["tail", "more"]),
        ("<p>a<svg><g><p>more", ["a", "more"]),
        ("<p>a<svg><g></p>more", ["a", "more"]),
        ("<p>a<svg><font>x<font title=size>y<font title='a' size=1>more", ["a", "more"]),
        ("<div>a<svg></div>b<svg><desc><p>x</desc></svg>c", ["a", "b", "c"]),
        ("", []),
    ],
)
def test_texts(page: str, texts: list[str]) -> None:
    assert of(page).text == texts


def path(markup: Markup, number: int) -> list[str]:
    """The elements around a block, from within."""
    node, out = markup.node[number], []
    while node:
        out.append(BLOCKS[markup.code[node] - 1])
        node = markup.parent[node]
    return out


@pytest.mark.parametrize(
    ("page", "paths"),
    [
        ("<ul><li>a<li>b<ul><li>c</ul></ul>d", [["li", "ul"], ["li", "ul"], ["li", "ul", "li", "ul"], []]),
        ("<div><p>a<p>b<div>c</div></div>d", [["p", "div"], ["p", "div"], ["div", "div"], []]),
        ("<table><tr><td>a<td>b<tr><td>c</table>d", [["td", "tr", "table"]] * 3 + [[]]),
        ("<div><table><tr><td>a</div>b</table>c</div>d", [["td", "tr", "table", "div"]] * 2 + [["div"], []]),
        ("<dl><dt>a<dd>b<dt>c</dl>", [["dt", "dl"], ["dd", "dl"], ["dt", "dl"]]),
        ("<div><section>a</div>b", [["section", "div"], []]),
    ],
)
def test_elements_around(page: str, paths: list[list[str]]) -> None:
    markup = of(page)
    assert [path(markup, number) for number in range(len(markup.text))] == paths


def test_links() -> None:
    markup = of("<p>a <a href=x>link</a> and <a name=y>none</a></p><a href=z><div>around a block</div></a>")
    assert list(zip(markup.links, markup.linked, strict=True)) == [(1, 4), (1, 14)]


def test_blocks_of_an_element() -> None:
    markup = of("<div>a<p>b</p>c</div><div>d</div>")
    assert list(zip(markup.first, markup.last, strict=True)) == [(0, 4), (0, 3), (1, 2), (3, 4)]


def test_what_attributes_say() -> None:
    assert said(' class="post-comments"') & BIT["comment"] and said(" id=sidebar") & BIT["side"]
    assert not said(' data-x="comments"') and not said(" class=loading") & BIT["ad"]
    assert said(' style="display: none"') == HIDDEN == said(" hidden")
    assert attributes_of(""" A='1' b = "x &amp; y" c=d a=2""") == {"a": "1", "b": "x & y", "c": "d"}


def test_lines() -> None:
    page = "<h1>A</h1><div>b</div><div>c</div><p>d</p><ul><li>e<li><p>f</p></ul><ol><li>g<li>h</ol><table><tr><td>1<td>2<tr><td>3</table>"
    markup = of(page)
    assert render.text(markup, range(len(markup.text))) == "A\n\nb\nc\n\nd\n\n• e\n• f\n\n1. g\n2. h\n\n1 | 2\n3"
    assert render.text(markup, [1, 3, 7]) == "b\n\nd\n\n2. h"


WORDS = [
    "share-bar",
    "sidebar",
    "nav",
    "content-body",
    "ad",
    "ads",
    "related",
    "x",
    "tabs",
    "comment-list",
    "post",
    "\n",
]


@given(st.lists(st.sampled_from(WORDS), max_size=10), st.sampled_from(["", "new words here that nobody saw: "]))
def test_a_class_says_what_its_words_say(words: list[str], more: str) -> None:
    """Whether they are looked up one by one, or, many new ones, at once."""
    more = "".join(f"{word}{time.perf_counter_ns()} " for word in more.split())
    every = 0
    for word in [*words, *more.split()]:
        every |= said(f' class="{word}"')
    assert said(f' class="{more}{" ".join(words)}"') == every


@pytest.mark.parametrize("number", ["9" * 5000, "0" * 5000 + "65", "0" * 5000])
def test_a_number_of_thousands_of_digits_loses_no_page(number: str) -> None:
    """Python reads no number of over 4,300 digits. A parser takes those that are no character for U+FFFD."""
    for page in (f"<p>words &#{number}; more", f"<title>words &#{number};</title><p>words &#{number}; more"):
        expected = "A" if number.endswith("65") else "\ufffd"
        assert of(page).text == [f"words {expected} more"]
        assert head(tokens(page)).title in ("", f"words {expected}")
    assert attributes_of(f' name="&#{number};"')["name"] == expected


COMMENT = st.sampled_from(["<!--", "-", "-", "!", ">", "x", "<!", "--", "<", "/", "?"])


@settings(max_examples=300, deadline=None)
@given(st.lists(COMMENT, max_size=12))
def test_comments_end_where_a_parser_of_the_standard_ends_them(pieces: list[str]) -> None:
    page = "<p>a" + "".join(pieces)
    body = HTMLTree.parse(page).body
    assert body is not None and "".join(of(page).text).split() == body.text.split()


def kept(page: str) -> tuple[bool, bool]:
    """Whether the text behind a page is text, by `read` and by a parser of the standard."""
    found = [node.text for node in HTMLTree.parse(page + "<p>words").document.get_elements_by_tag_name("p")]
    return "words" in " ".join(of(page + "<p>words").text), "words" in found


FOREIGN = st.sampled_from(
    [
        "<svg>",
        "</svg>",
        "<math>",
        "</math>",
        "<style/>",
        "<title />",
        "<g>",
        "</style>",
        "</title>",
        "<p>",
        "<font>",
        "<font size=1>",
        "<font a=size>",
        "</p>",
    ]
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(FOREIGN, max_size=8))
def test_raw_elements_of_svg_may_be_empty(pieces: list[str]) -> None:
    ours, parsers = kept("".join(pieces))
    assert ours == parsers


@pytest.mark.parametrize("inside", ["<style/>", "</foreignObject><style/>", "<svg><style/></svg>", "</svg><style/>"])
def test_html_begins_again_within_svg(inside: str) -> None:
    """For `tokens`. `read` skips what is in SVG."""
    page = f"<svg><foreignObject>{inside}"
    assert tokens(page + "<p>words")[-1].endswith("words") == kept(page)[1]


PIECE = st.sampled_from(
    [
        *(f"<{name}>" for name in BLOCKS),
        *(f"</{name}>" for name in BLOCKS),
        "<a href=x>",
        "</a>",
        "<br>",
        "x",
        " ",
        "<!--",
        "-->",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECE, max_size=60))
def test_any_page_makes_a_tree(pieces: list[str]) -> None:
    """Each element begins and ends within the one around it, and each block lies in its element."""
    markup = of("".join(pieces))
    for node in range(1, len(markup.parent)):
        around = markup.parent[node]
        assert around < node and markup.first[around] <= markup.first[node] <= markup.last[node] <= markup.last[around]
    for number, node in enumerate(markup.node):
        assert markup.first[node] <= number < markup.last[node]
    assert len(markup.text) == len(markup.node) == len(markup.links) == len(markup.linked) == len(markup.marks)
