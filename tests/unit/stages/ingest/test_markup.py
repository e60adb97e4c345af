"""Blocks, elements and links of pages, whole and broken."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.stages.ingest import render
from crawl2llm.stages.ingest.head import read_head
from crawl2llm.stages.ingest.markup import Markup, parse_page, read_markup
from crawl2llm.stages.ingest.tags import BIT, BLOCKS, HIDDEN, name_bits
from crawl2llm.stages.ingest.warc import drop_unseen


def of(page: str) -> Markup:
    return read_markup(parse_page(page))


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("a<p>b</p>c", ["a", "b", "c"]),
        ("<p>one <b>two</b> <a href=x>three</a>\n  four", ["one two three four"]),
        ("<p>a<br>b<br><br>c", ["a\nb", "c"]),
        ("<p>a &amp; b &lt;c&gt; &#x41;", ["a & b <c> A"]),
        ("<pre>a\n  b</pre>", ["a\n  b"]),
        ("<pre>\n\n  <b>a</b>\r\n\tb \n </pre>", ["  a\n\tb"]),
        ("<pre>a<br>b<br><br>c", ["a\nb\n\nc"]),
        ("<script>'<p>x'</script><style>p</style><!-- <p>x -->a<svg><text>x</text></svg>", ["a"]),
        ("<!-->a<!--->b<!---->c<!-- x --!> -->d", ["abc -->d"]),
        ("a < b <p>c <> d", ["a < b", "c <> d"]),
        ("<p title='a > b'>c<p title=it's>d<p x=\"", ["c", "d"]),
        ("<P CLASS=x>a</P><Div>b</dIV>", ["a", "b"]),
        ("a</nothing>b</p>c", ["ab", "c"]),
        ("<textarea><p>x</textarea>a<title>x</title>", ["a"]),
        ("<script>x", []),
        ("<frameset><frame></frameset><noframes>a</noframes>", []),
        ("<div>a<hr>b</div>", ["a", "b"]),
        ("<xmp><p>a</xmp>b", ["<p>a", "b"]),  # shown as it stands
        ("<table>a<tr><td>b</table>", ["a", "b"]),  # foster-parented
        ("", []),
        ("\x00", []),
        ("<p>a\x00b &#0; \ud800c&#xd800;", ["ab \ufffd c\ufffd"]),
        ("<svg><title/></svg>a<svg/><p>b", ["a", "b"]),
        ("<svg><style/><p>a", ["a"]),
        ("<p>\u00a0a\u3000\u2003b\x85c\u1680d\u202fe\u205ff\u2028g\u00adh", ["a b c d e f gh"]),
    ],
)
def test_texts(page: str, texts: list[str]) -> None:
    assert of(page).text == texts


PHRASING = (
    "abbr", "bdi", "cite", "code", "data", "dfn", "kbd", "map", "mark", "meter", "output", "picture", "progress", "q", "ruby", "samp",
    "slot", "span", "time", "u", "var", "x-y",
)  # fmt: skip
UNREAD = (
    "button", "select", "svg", "canvas", "video", "audio", "object", "template", "datalist", "textarea", "iframe", "script", "style",
)  # fmt: skip


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        *((f"<{name}>in</{name}>", "in") for name in PHRASING),
        # What is shown of it is text.
        ("<label>in</label> ", "in "), ("<noscript>in</noscript> ", "in "), ("<noscript><img></noscript>", ""),
        ("<math><mi>r</mi><annotation>{r}</annotation><annotation-xml>{r}</annotation-xml></math> ", "r "),
        ("<math><semantics><ms><![CDATA[<r>]]></ms></semantics></math> ", "<r> "),
        ("<x-y><b>in</b><i-j> it</i-j></x-y> ", "in it "), ("<math-field>in</math-field>", "in"),
        # What is a control, a picture or stands in for one is not.
        *((f"<{name}>in</{name}>", "") for name in UNREAD),
        ("<select><option>1<option>2</select>", ""), ("<datalist><option>1</datalist>", ""), ("<input value=1>", ""), ("<img alt=1>", ""),
        ("<dialog>in</dialog>", ""),
    ],
)  # fmt: skip
def test_what_may_stand_in_a_paragraph_does_not_cut_it(inside: str, text: str) -> None:
    """https://html.spec.whatwg.org/multipage/dom.html#phrasing-content, within `<p>` and within `<div>`; but see `test_dialogs`."""
    paragraph = "div" if inside.startswith("<dialog") else "p"  # a dialog ends a paragraph, wherever it stands
    assert of(f"<{paragraph}>before {inside}, behind").text == [" ".join(f"before {text}, behind".split())]


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<p>a<button>1</button>b<svg></svg>c", ["a b c"]),  # what stands between words parts them
        ("<p>漢<button>1</button>字", ["漢字"]),
        ("<p><label>a</label><label>b</label>", ["a b"]),
        ("<label>a</label><label>b</label>", ["a", "b"]),
        ("<p>a<label>b</label>(<noscript>c</noscript>)", ["a b (c )"]),
        ("<x-y>a</x-y>b", ["ab"]),
        ("<x-y>a<p>b</p></x-y>c", ["a", "b", "c"]),  # with a block within it is one
        ("<x-y><i-j><div>a</div></i-j>b</x-y>c", ["a", "b", "c"]),
        ("<x-y>a<select><hr></select><svg><p></svg></x-y>", ["a"]),
        ("<div>a</div><noscript>b</noscript><div>c", ["a", "b", "c"]),
        ("a<noscript><p>b</p></noscript>c", ["a", "b", "c"]),
        ("<form><div>a</div><label>b</label><input><div>c", ["a", "b", "c"]),
        # The formula is drawn once more, for eyes alone.
        ("<p>a <span><span><math><mi>r</mi></math></span><span aria-hidden=true><b>r</b></span></span> b", ["a r b"]),
        ("<p>a <span><nobr aria-hidden=true><b>r</b></nobr><span><math><mi>r</mi></math></span></span> b", ["a r b"]),
        ("<p>a <b aria-hidden=true>r</b>", ["a r"]),
    ],
)
def test_borders_within_a_text(page: str, texts: list[str]) -> None:
    assert of(page).text == texts


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<button>a<p>b</p><p>c", ["a", "b", "c"]),  # left open: all behind is within
        ("<div><button class=x /><p>a</p></div><p>b", ["a", "b"]),
        ("<button><div>a</div></button>b", ["b"]),
        ("<h2><button>a</button></h2><h3><span><button>b</button></span></h3><p><button>c</button>", ["a", "b"]),
    ],
)
def test_buttons(page: str, texts: list[str]) -> None:
    assert of(page).text == texts


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<dialog>a</dialog>b<dialog open>c</dialog><dialog OPEN=''><p>d", ["b", "c", "d"]),
        ("<template>a</template><template><p>b</template>", []),
        ("<x-y><template shadowrootmode=open><p>a</p></template>b</x-y>c", ["a", "b", "c"]),
        ("<p>a <x-y><template shadowrootmode=closed>b<slot></slot></template></x-y> c", ["a b c"]),
        ("<template shadowrootmode=x>a</template><svg><template shadowrootmode=open>b</template></svg>", []),
        ("<div><template shadowrootmode=open><template>a</template><i><template shadowrootmode=open>b</template></i></template>", ["b"]),
        ("<template shadowrootmode=open>a</template>", []),  # in the head,
    ],
)  # fmt: skip
def test_dialogs_and_shadow_trees(page: str, texts: list[str]) -> None:
    assert of(page).text == texts


def path(markup: Markup, number: int) -> list[str]:
    """The elements around a block within the body, from within."""
    node, out = markup.node[number], []
    while node > 1:
        out.append(BLOCKS[markup.code[node] - 1])
        node = markup.parent[node]
    return out


@pytest.mark.parametrize(
    ("page", "paths"),
    [
        ("<ul><li>a<li>b<ul><li>c</ul></ul>d", [["li", "ul"], ["li", "ul"], ["li", "ul", "li", "ul"], []]),
        ("<div><p>a<p>b<div>c</div></div>d", [["p", "div"], ["p", "div"], ["div", "div"], []]),
        ("<table><tr><td>a<td>b<tr><td>c</table>d", [["td", "tr", "tbody", "table"]] * 3 + [[]]),
        ("<div><table><tr><td>a</div>b</table>c</div>d", [["td", "tr", "tbody", "table", "div"], ["div"], []]),
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
    assert list(zip(markup.first, markup.last, strict=True)) == [(0, 4), (0, 4), (0, 3), (1, 2), (3, 4)]


def bits(attributes: str) -> int:
    """What an element with these attributes says."""
    return of(f"<div {attributes}>a").own_bits[2]


def test_what_attributes_say() -> None:
    assert bits('class="post-comments"') & BIT["comment"] and bits("id=sidebar") & BIT["side"]
    assert bits("role=navigation") & BIT["nav"] and bits("itemprop=author") & BIT["meta"]
    assert not bits('data-x="comments" data-class=comments') and not bits("class=loading") & BIT["ad"]
    assert bits('class="' + "x " * 300 + 'comments"') == 0  # only its beginning is looked at


@pytest.mark.parametrize(
    "attributes",
    ["hidden", "style='Display : none'", "style=visibility:hidden", "aria-hidden=true", "aria-hidden=' TRUE '", "class='a hidden'"],
)  # fmt: skip
def test_hidden(attributes: str) -> None:
    assert bits(attributes) == HIDDEN


@pytest.mark.parametrize(
    "attributes", ["style=overflow:hidden", "style='a: none'", "aria-hidden=false", "class=hidden-xs", "title=hidden"]
)
def test_not_hidden(attributes: str) -> None:
    assert not bits(attributes) & HIDDEN


def test_lines() -> None:
    page = "<h1>A</h1><div>b</div><div>c</div><p>d</p><ul><li>e<li><p>f</p></ul><ol><li>g<li>h</ol><table><tr><td>1<td>2<tr><td>3</table>"
    markup = of(page)
    assert render.plain_text(markup, range(len(markup.text))) == "A\n\nb\nc\n\nd\n\n• e\n• f\n\n1. g\n2. h\n\n1 | 2\n3"
    assert render.plain_text(markup, [1, 3, 7]) == "b\n\nd\n\n2. h"


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


@given(st.lists(st.sampled_from(WORDS), max_size=10), st.integers(0, 12))
def test_a_class_says_what_its_words_say(words: list[str], new: int) -> None:
    """Whether all are known, a few are new, or many, of which most are not remembered; and the same again."""
    fresh = [f"{word}-{time.perf_counter_ns()}" for word in (WORDS * 2)[:new] if word != "\n"]
    value = " ".join([*words, *fresh, *words])
    every = 0
    for word in [*words, *fresh]:
        every |= name_bits(word)
    for _ in range(8):
        assert bits(f'class="{value}"') == name_bits(value) == every


def test_more_words_than_are_remembered() -> None:
    """All are forgotten then, and learnt again."""
    many = "".join(f"<div class='word{number} xy{number}'>a</div>" for number in range(40_000))
    for _ in range(2):
        markup = of(many + "<div class='comment new-word'>b")
        assert markup.own_bits[-1] & BIT["comment"] and set(markup.own_bits[2:-1]) == {0}
    assert bits("class=sidebar") & BIT["side"] and bits("class='x hidden'") & HIDDEN


@pytest.mark.parametrize("number", ["9" * 5000, "0" * 5000 + "65", "0" * 5000])
def test_a_number_of_thousands_of_digits_loses_no_page(number: str) -> None:
    """Python reads no number of over 4,300 digits. A parser takes those that are no character for U+FFFD."""
    for page in (f"<p>words &#{number}; more", f"<title>words &#{number};</title><p>words &#{number}; more"):
        expected = "A" if number.endswith("65") else "\ufffd"
        assert of(page).text == [f"words {expected} more"]
        assert read_head(parse_page(page)).title in ("", f"words {expected}")


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


TAGS = "<p> </p> <!-- --> <script> </script> <svg> <template> <select> <b> </b> <table> \x00 \ud800 &# \U0001f600"
ANY = st.sampled_from([*"<>/=\"'!-?&;a \n", *TAGS.split()])


@settings(max_examples=500, deadline=None)
@given(st.lists(ANY | st.text(max_size=4), max_size=40))
def test_any_string_is_a_page(pieces: list[str]) -> None:
    markup = of("".join(pieces))
    assert all(text == text.strip("\n") and text.strip() for text in markup.text)
    assert len(markup.text) == len(markup.node)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="<&\x00\r"), max_size=30), min_size=1, max_size=6))
def test_no_text_of_a_paragraph_is_lost(texts: list[str]) -> None:
    page = "<p>" + "<b></b>".join(texts) + "</p>"
    expected = drop_unseen("".join(texts).encode("utf-8", "ignore").decode()).split()
    assert " ".join(of(page).text) == " ".join(expected)


@pytest.mark.parametrize(
    "unit", ["<b>", "<x-y>", "<span>x", "<a href=x>", "<svg>", "<math>", "<template shadowrootmode=open>", "<label>", "<button>"]
)  # fmt: skip
def test_deep_pages(unit: str) -> None:
    """What is read knows no recursion."""
    markup = of("<p>" + unit * 3000 + "a")
    assert "a" in "".join(markup.text) or unit in ("<svg>", "<button>")


def test_the_work_grows_with_the_page() -> None:
    """Of elements whose neighbours, and whose inside, are looked at."""
    for unit in (
        "<label>a</label>",
        "<label></label>",
        "<x-y></x-y>",
        "<noscript></noscript><br>",
        "<b aria-hidden=true></b>",
    ):
        begin = time.process_time()
        of("<div>" + unit * 20_000)
        assert time.process_time() - begin < 2, unit
