"""Pages made to cost a parser time or memory: each is read within bounds, or dropped with a reason that counts and no clock decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from scripts.ingest.bounds import SQUARES, TAGS, opens_again, too_hard, too_many_tags
from scripts.ingest.extractors import EXTRACTORS, TooHard
from scripts.ingest.head import facts, head
from scripts.ingest.markup import parse, tokens
from scripts.ingest.nesting import FORMATTING, open_elements
from scripts.workflow.config import ROOT
from tests.unit.ingest.test_nesting import PIECES
from tests.unit.ingest.warcs import html, http, read, reasons, record

ATTRIBUTES = "<p {}>words</p>"


def verdict(page: str) -> str:
    """The reason why a page is not parsed, or ""."""
    return "too_complex" if too_many_tags(page) else too_hard(tokens(page))[0]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (ATTRIBUTES.format(" ".join(f"a{number}=1" for number in range(20_000))), "too_complex"),
        (ATTRIBUTES.format(" ".join(f"a{number}" for number in range(20_000))), "too_complex"),
        (ATTRIBUTES.format(" ".join(f'a{number}="b>"' for number in range(2_000))) * 40, "too_complex"),
        ("<p>" + "".join(f"<b a={number}>" for number in range(2000)) + "</p><p>x" * 2000, "too_complex"),
        ("".join(f"<b a={number}></b>" * 3 + f"<p><b a={number}>x" for number in range(1600)), "too_complex"),
        ("<table>" + "".join(f"<b a={number}>x<col>" for number in range(3000)), "too_complex"),
        ("".join(f"<b a={number}><object></b></object><p>x" for number in range(2000)), "too_complex"),  # no end of <b>
        (
            "".join(f"<b a={number}>" for number in range(1500))
            + "".join(f"<i a={number}>" for number in range(1500))
            + "</b>x" * 1500,
            "too_complex",
        ),
        (
            "".join(f"<rt><h1><a a={number}></template><template a={number}></td>x" for number in range(1500)),
            "too_complex",
        ),
        ("<div>" * 9500, "too_deep"),
        ("".join(f"<p><a href={number}>x" for number in range(3000)), ""),
        ("<br>" * (TAGS + 1), "too_complex"),
        (ATTRIBUTES.format(" ".join(f"a{number}=1" for number in range(1_000))) * 20, ""),
        (ATTRIBUTES.format('style="' + "a: b; " * 50_000 + '"'), ""),
        (ATTRIBUTES.format("data='" + '{"a": 1, ' * 50_000 + "'"), ""),
        ("<p><b>x" * 2000, ""),
        ("<p><font size=2>words</p>" * 2_000, ""),
        ("<p>words</p>" * 49_000, ""),
        ("<p>words</p>" * 51_000, "too_complex"),
        ("<select>" + "<option>x" * 10_001, "too_complex"),
        ("<script>" + "'<a b=1 c=2>'" * 10_000 + "</script>", ""),
    ],
)
def test_what_is_counted(page: str, reason: str) -> None:
    assert verdict(page) == reason


def opened(page: str) -> int:
    """Formatting elements of Resiliparse's tree that no start tag made."""
    root = HTMLTree.parse(page).document
    made = sum(len(root.get_elements_by_tag_name(name)) for name in FORMATTING)
    return made - sum(page.lower().count(f"<{name}{end}") for name in FORMATTING for end in " >")


LEFT = st.sampled_from([
    "<a a={}>", "<b a={}>", "<nobr a={}>", "<font a={}>", "<i a={}>", "</a>", "</b>", "</i>", "</font>", "x", "<p>", "</p>", "<object>",
    "</object>", "<td>", "</td>", "<table>", "</table>",
])  # fmt: skip


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.one_of(LEFT, PIECES), min_size=2, max_size=8))
def test_no_page_opens_more_again_than_is_counted(pieces: list[str]) -> None:
    page = grown(pieces, 40 * len("".join(pieces)))
    found = opened(page)
    assert found < 2 or (opens_again(tokens(page), found - 1) and open_elements(tokens(page)).again >= found)


def test_the_bound_is_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many attributes as the square's root are parsed, one more are not."""
    most = int(SQUARES**0.5)
    for number, reason in ((most, ""), (most + 1, "too_complex")):
        assert verdict(ATTRIBUTES.format(" ".join(f"a{each}" for each in range(number)))) == reason


def test_such_a_page_is_counted_and_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    attributes = ATTRIBUTES.format(" ".join(f"a{number}=1" for number in range(80_000))).encode()
    pages = [http(attributes), http(b"<i>" * (TAGS + 1)), http(html().encode())]
    path.write_bytes(b"".join(record("response", number, page) for number, page in enumerate(pages)))
    found = read(path, max_body_bytes=20_000_000, extractor="resiliparse")
    assert reasons(found) == {"too_complex": 2, "page": 1}
    assert [each.detail for each in found[:2]] == [
        "a tag with 80,000 attributes", f"{TAGS + 1:,} tags, at most {TAGS:,}",
    ]  # fmt: skip


PIECE = st.sampled_from([
    "<div>", "</div>", "<p>", "x", "<table>", "<tr>", "<td>", "</table>", "<ul><li>", "<b a={}>", "</b>", "<a href='", '<a href="',
    "<!--", "-->", "<!-->",
    "<script>", "</script>", "<style", "<title>", "<pre>\n", "<br>", "&amp;", "&#x", "&", "<svg>", "<select><option>",
    "<p class='ad b c'>", "=", '="', "='",
    "<", ">", "</", "<meta name=robots content=index>", '"author":{', "<script type=ld+json>", "\x00", "\u3000", " ", "\n", "é", "<x-y>",
    "</x-y>", "<font>",
    "<button>", "<noscript>", "<blockquote>", "<h1>", "<form>", "<template>", "<math>", "<textarea>", "\U0001f600", "<p {}=1>", "</p>",
    "<body>", "</body>",
])  # fmt: skip
COSTLY = """
import json, re, sys, time
from tests.unit.ingest.test_bounds import allowed, grown, work
work("<p>words</p>", sys.argv[2])  # what is imported at the first page
begin = time.process_time()
for line in sys.stdin:
    page = grown(json.loads(line), int(sys.argv[1]))
    work(page, sys.argv[2])
    work(allowed(page), sys.argv[2])
# Not ru_maxrss, in which the memory of the process that started this one counts.
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read()).group(1))
print(time.process_time() - begin, peak // 1024)
"""


def grown(pieces: list[str], size: int) -> str:
    """The pieces again and again, with numbers where they have room for one, up to so many characters."""
    unit = "".join(pieces)
    many = size // len(unit) + 1
    page = "".join(unit.replace("{}", str(number)) for number in range(many)) if "{}" in unit else unit * many
    return page[:size]


def allowed(page: str) -> str:
    """The beginning of a page that has as many tags as are read."""
    return "<".join(page.split("<", TAGS + 1)[: TAGS + 1])


def work(page: str, extractor: str = "fast") -> str:
    """All that is done with a page, and the reason where it is dropped."""
    if too_many_tags(page):
        return "too_complex"
    tree = parse(page)
    facts(head(tree), "https://example.org/")
    try:
        EXTRACTORS[extractor](page, tree, True)
    except TooHard as hard:
        return hard.reason
    return ""


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECE, min_size=1, max_size=8), st.sampled_from(["fast", "resiliparse"]))
def test_any_page_ends_soon(pieces: list[str], extractor: str) -> None:
    """Pages of 100 kB; the bound is what 20 MB may take, in proportion, and 100 times what they do take: square work is over it."""
    page = grown(pieces, 100_000)
    begin = time.process_time()
    work(page, extractor)
    assert time.process_time() - begin < 2


@pytest.mark.slow
@pytest.mark.parametrize("extractor", ["fast", pytest.param("resiliparse", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "pieces",
    [
        ["<div>"], ["<p {}=1 ", "{}=1 "], ["<p>x"], ["x<br><br>"], ["<b a={}>", "<p>x</p>"], ["<table>", "<tr>", "<td>"], ["x"],
        ["<span>"], ["<"], ["<a "],
        ["<p title='"], ["<!--"], ["&amp;"], ["\x00"], ["<style><title>"], ["<meta name=a content=b>"], ['"author":{'], ["<pre>\n"],
        ["="], ["<a href=x>y</a> "],
    ],
    ids=repr,
)  # fmt: skip
def test_a_page_of_20_mb(pieces: list[str], extractor: str) -> None:
    """And its beginning that is not too long, in a process of its own for its memory. 500 MB and 2 s are promised: here three times
    2 s for each, for a busy machine.
    """
    out = subprocess.run(
        [sys.executable, "-c", COSTLY, "20000000", extractor], input=json.dumps(pieces), capture_output=True, text=True, check=True,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout.split()  # fmt: skip
    seconds, megabytes = float(out[0]), int(out[1])
    assert seconds < 12 and megabytes < 600, (seconds, megabytes)
