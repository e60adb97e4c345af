"""Blocks as plain text and as Markdown: numbers of lists, what is raised, characters that are not seen, tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.ingest import blocks, markdown
from crawl2llm.stages.ingest.markup import parse_page
from crawl2llm.stages.ingest.tags import UNSEEN
from crawl2llm.stages.ingest.warc import drop_unseen

# Persian, Hindi, an emoji.
JOINERS = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u0915\u094d\u200d\u0937 \U0001f468\u200d\U0001f469"


def of(page: str) -> str:
    return blocks.page_text(parse_page(page), main=False)


def as_markdown(page: str) -> str:
    return blocks.page_text(parse_page(page), False, markdown.markdown_text)


@pytest.mark.parametrize(
    ("page", "marks"),
    [
        ("<ol><li>x<li>x</ol>", "1. 2."),
        ("<ol start=5><li>x<li value=9>x<li>x</ol>", "5. 9. 10."),
        ("<ol reversed><li>x<li>x<li>x</ol>", "3. 2. 1."),
        ("<ol reversed start=3><li>x<li>x<ol><li>x<li>x</ol><li>x</ol>", "3. 2. 1. 2. 1."),
        ("<ol reversed><li>x<li value=10>x<li>x</ol>", "3. 10. 9."),
        ("<ol start=0><li>x<li value=-7>x<li>x</ol>", "0. -7. -6."),
        ("<ol start=' +7 items'><li>x</ol><ol start=seven><li value=x>x</ol>", "7. 1."),
        ("<ol start=99999999999999999999><li value=-99999999999>x</ol>", "1."),
        ("<ol type=a start=26><li>x<li>x<li value=702>x<li>x</ol>", "z. aa. zz. aaa."),
        ("<ol type=A><li>x</ol><ol type=a start=0><li>x<li>x</ol>", "A. 0. a."),
        ("<ol type=i start=1994><li>x<li value=4>x<li value=3999>x<li>x</ol>", "mcmxciv. iv. mmmcmxcix. 4000."),
        ("<ol type=I><li value=49>x<li type=1>x<li type=a value=3>x<li type=disc>x</ol>", "XLIX. 50. c. IV."),
        ("<ul start=3 type=a><li value=5>x</ul><ol start=2><ul><li>x</ul></ol>", "• •"),
    ],
)  # fmt: skip
def test_numbers_of_items(page: str, marks: str) -> None:
    """As browsers number them (https://html.spec.whatwg.org/multipage/grouping-content.html#ordinal-value)."""
    assert of(page).split() == [word for mark in marks.split() for word in (mark, "x")]
    assert as_markdown(page).split() == [word for mark in marks.replace("•", "-").split() for word in (mark, "x")]


def test_lines_of_an_item_stand_below_its_text() -> None:
    assert as_markdown("<ol start=10 type=i><li><p>a</p><p>b</p></ol>") == "x. a\n\n   b"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("10<sup>6</sup>, 10<sup>-6</sup> m<sup>2</sup>", "10^6, 10^-6 m^2"),
        ("H<sub>2</sub>O SO<sub>4</sub><sup>2-</sup>", "H2O SO4^2-"),
        ("a word<sup>1</sup>, one<sup><a href=#n>2</a></sup> Smith<sup>1,2</sup> end.<sup>3</sup>", "a word^1, one^2 Smith^1,2 end.^3"),
        ("so<sup>[1]</sup> so<sup>(2)</sup> so<sup>*</sup> so<sup>†</sup>", "so[1] so(2) so* so†"),
        ("1<sup>st</sup> XIX<sup>e</sup> n<sup>o</sup> M<sup>me</sup> X<sup>TM</sup>", "1st XIXe no Mme XTM"),
        ("a<sup>n</sup> x<sup>n+1</sup> e<sup>-2x</sup> e<sup>x<sup>2</sup></sup>", "a^n x^(n+1) e^(-2x) e^(x^2)"),
        ("5<sup>1</sup>/<sub>2</sub> cups, <sup>3</sup>\u2044<sub>4</sub>", "5 1/2 cups, 3\u20444"),
        ("59,<sup>00</sup> zł", "59,00 zł"),
        ("<sup>1</sup> A note<br><sup>2</sup> Another", "1 A note\n2 Another"),
        ("a<sup>\n</sup>b<sup></sup>c<sup>x<br>y</sup>", "a bcx\ny"),
        ("a<sup>a note of more than forty letters is not a power</sup>", "aa note of more than forty letters is not a power"),
        ("a<sup>a note of more than forty letters is no power</sup>", "aa note of more than forty letters is no power"),
        ("<math><msub><mi>x</mi><mn>1</mn></msub><mfrac><msqrt><mi>y</mi></msqrt><msqrt><mn>-3</msqrt></mfrac></math>", "x1√y/√(-3)"),
    ],
)  # fmt: skip
def test_what_is_raised_is_told_from_what_is_before_it(page: str, text: str) -> None:
    assert of(f"<p>{page}</p>") == text


def test_in_code_too() -> None:
    assert of("<pre>10<sup>6</sup>\n<sup>2</sup></pre>") == "10^6\n2"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("Do\u00adnau\u200bdampf\ufeff\u2060schiff \u200b fährt", "Donaudampfschiff fährt"),
        ("Do&shy;nau<b>&#8203;dampf</b>", "Donaudampf"),
        (JOINERS, JOINERS),
        ("ไทย\u200bไทย \u200bลาว", "ไทย\u200bไทย ลาว"),
        ("ខ្មែរ<b>\u200b</b>\u00ad\u200bខ្មែរ", "ខ្មែរ\u200bខ្មែរ"),
        ("မြန်မာ\u200ba\u200bမြန်မာ\u200b", "မြန်မာaမြန်မာ"),
        ("日本\u200b語", "日本語"),
    ],
)  # fmt: skip
def test_characters_that_are_not_seen(page: str, text: str) -> None:
    """They are left out, except U+200B between words of scripts without spaces; joiners (U+200C, U+200D) stay."""
    assert of(f"<p>{page}</p>") == text
    assert of(f"<pre>{page}</pre>").split() == text.split()


def test_a_block_of_nothing_else_is_none() -> None:
    assert of("<p>a</p><p>\u200b</p><p>\ufeff</p><p>b</p>") == "a\n\nb"


# The first and the last character of each row of 64 that may have either meaning, and others.
_NEAR = [chr(row + end) for row in range(0xE00, 0x1C00, 64) for end in (0, 63)] + [
    chr(row) for row in range(0xA800, 0xAC00, 64)
]


@given(st.text([*UNSEEN, "\u200b", "a", "é", "語", "ไ", "ខ", *_NEAR], max_size=12))
def test_one_rule_for_pages_and_for_other_texts(text: str) -> None:
    assert of(f"<pre>a{text}a</pre>") == drop_unseen(f"a{text}a")


@pytest.mark.parametrize(
    ("page", "rows"),
    [
        ("<table><tr><th>a<th>b<tr><td>c<td>d</table>", ["a b", "c d"]),
        ("<table><thead><th>a<th>b</thead><tr><td>c<td>d</table>", ["a b", "c d"]),
        ("<table><tr><th><p>a</p><th><p>b</p><tr><td><p>c</p><td><div><p>d</p></div></table>", ["a b", "c d"]),
        ("<table><tr><th>a<br>x<th>b<tr><td>c<td>d<br>y</table>", ["a x b", "c d y"]),
        ("<table><tfoot><tr><td>e<td>f</tfoot><tbody><tr><td>c<td>d</tbody><thead><tr><th>a<th>b</thead></table>", ["a b", "c d", "e f"]),
        ("<table><tr><th>a<th>b<tr><td>c<td><tr><td><td>d</table>", ["a b", "c", "d"]),
    ],
)  # fmt: skip
def test_rows_of_tables(page: str, rows: list[str]) -> None:
    """A row is a line, the head is the first, and cells stand in their order."""
    assert [line.replace(" | ", " ") for line in of(page).split("\n")] == rows
    first, rule, *others = as_markdown(page).split("\n")
    assert [" ".join(line.replace("|", " ").split()) for line in (first, *others)] == rows and set(rule) == set("| -")


def test_a_table_for_layout_is_no_rows() -> None:
    long = "Some words of a sentence. " * 20
    page = f"<table><tr><td><p>menu</p></td><td><p>{long}</p><p>b</p></td></tr><tr><td><p>{long}</p></td></tr><tr><td><p>c</table>"
    assert of(page) == f"menu\n\n{long.strip()}\n\nb\n\n{long.strip()}\n\nc"


def test_a_caption_stands_above_its_table() -> None:
    page = "<table><caption>a</caption><tr><td>b<td>c</table>"
    assert of(page) == "a\nb | c" and as_markdown(page) == "a\n\n| b | c |\n| --- | --- |"
