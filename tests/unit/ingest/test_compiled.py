"""The compiled part does what its plain description says, on any text, and is refused where its source is another one."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from html.entities import html5 as NAMES
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.ingest import compiled, markup
from scripts.ingest.markup import read, tokens

ROOT = Path(__file__).resolve().parents[3]
# `tokens` as one expression, but for raw elements that end at once in SVG. Quotes count only behind an equals sign.
ATTRIBUTES = r"""((?:[^>=]++|=\s*+"[^"]*+"|=\s*+'[^']*+'|=)*+)(?:>|\Z)"""
TOKEN = re.compile(
    rf"<(?:!--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>|\Z))|[!?][^>]*+(?:>|\Z)|/(?=[^a-zA-Z])[^>]*+(?:>|\Z)"
    rf"|((?ai:script|style|textarea|title|iframe|noembed|noframes|xmp))(?=[\s/>]){ATTRIBUTES}"
    rf"((?:[^<]++|<(?!/(?ai:\1)))*+)(?:</[^>]*+>|\Z)"
    rf"|(/?[a-zA-Z][^\s/>]*+){ATTRIBUTES})"
)
WORDS = "-- <!-- --> &amp; <p </p <title> </TITLE </titles> <Script </script> <xmp/ x= <ſcript>"
PIECE = st.sampled_from([*"<>/=\"'!-?aB \n\u00a0\u2003é\U0001f600\ud800\x00", *WORDS.split()])


@settings(max_examples=1000, deadline=None)
@given(st.lists(PIECE, max_size=40))
def test_tokens_are_those_of_one_expression(pieces: list[str]) -> None:
    page = "".join(pieces)
    assert tokens(page) == TOKEN.split(page)


TAGS = "<p> </p> <pre> </pre> <ul> <li> </ul> <table> <td> </table> <svg> </svg> <x-y> </x-y> <br> <a href=x> </a> <select> </select>"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([*TAGS.split(), "x", "\n", "é\U0001f600", "\ud800"]) | st.text(max_size=5), max_size=60)
)
def test_any_page_makes_elements_and_blocks(pieces: list[str]) -> None:
    found = read(tokens("".join(pieces)))
    elements, blocks = len(found.parent), len(found.text)
    assert {len(each) for each in (found.code, found.own, found.bits, found.first, found.last)} == {elements}
    assert {len(each) for each in (found.node, found.links, found.linked, found.marks)} == {blocks}
    assert all(found.parent[number] < number for number in range(1, elements))
    assert all(0 <= first <= last <= blocks for first, last in zip(found.first, found.last, strict=True))
    assert all(0 <= node < elements for node in found.node) and all(found.text)


WORDS_OF = "& # ; x X 1 9 a f g amp lt notit notin; &amp; &#65; &#x41 &#x; &#xfffe &#128; &#xd800; &#xfdd0 &Auml nbsp copy= é <"
REFERENCE = st.sampled_from([*WORDS_OF.split(), "\t"])


@settings(max_examples=1000, deadline=None)
@given(st.lists(REFERENCE | st.text(max_size=3), max_size=30))
def test_references_are_replaced_as_by_the_library(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert markup._READER.unescape(text) == html.unescape(text)


def test_every_number_and_name_is_replaced_as_by_the_library() -> None:
    numbers = [
        *range(0x3100),
        *range(0xD7F0, 0xE010),
        *range(0xFDC0, 0xFE00),
        *range(0xFFF0, 0x10010),
        *range(0x10FFF0, 0x110010),
    ]
    for each in (*(f"&#{number};" for number in numbers), *(f"&#x{number:X}" for number in numbers)):
        assert markup._READER.unescape(each) == html.unescape(each), each
    for name in NAMES:
        for each in (f"&{name}", f"&{name.rstrip(';')}", f"&{name[:-1]}z;"):
            assert markup._READER.unescape(each) == html.unescape(each), each
    assert markup._READER.unescape("&#" + "0" * 5000 + "65;") == "A"
    assert markup._READER.unescape("&#" + "9" * 5000 + ";") == "\ufffd"


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from([*" \t\n\x1c\u00a0\u3000\x85ab", "é", "\U0001f600", "<br>", "<b>"]), max_size=30))
def test_white_space_is_folded(pieces: list[str]) -> None:
    lines = [" ".join(line.split()) for line in "".join(pieces).replace("<b>", "").split("<br>")]
    found = [line for text in read(tokens("<p>" + "".join(pieces))).text for line in text.split("\n")]
    assert found == [line for line in lines if line]


IDS = st.integers(0, 5).map(lambda number: f"{number << 60:032x}") | st.uuids().map(lambda one: one.hex)


@settings(max_examples=200, deadline=None)
@given(st.lists(IDS, max_size=60), st.booleans())
def test_ids_are_a_set(ids: list[str], many: bool) -> None:
    """Ids that differ in one half alone, zero, and so many that the table grows."""
    ids = [*ids, *(f"{number << 64:032x}" for number in range(2000 * many)), *ids]
    held, expected = compiled.Ids(), set[str]()
    for one in ids:
        assert held.add(one) == (one not in expected)
        expected.add(one)
    assert len(held) == len(expected)


@pytest.mark.parametrize(
    "id",
    ["", "0" * 31, "0" * 33, "g" * 32, f"{'+':032}", f"{'0x':032}", " " + "0" * 31, "0_" * 16, "00 " * 10 + "00"],
)
def test_what_is_no_id_is_refused(id: str) -> None:
    with pytest.raises(ValueError):
        compiled.Ids().add(id)


def test_a_tree_that_asks_for_no_measure_is_refused() -> None:
    one = np.zeros((1, 1), np.int16)
    with pytest.raises(ValueError, match="tree 0 asks for measure 3 of 1"):
        compiled.scores(one, np.full((1, 1), 3, np.int32), one, np.zeros((1, 2), np.int16), 0)


def test_trees_that_are_not_complete_are_refused() -> None:
    one = np.zeros((1, 1), np.int16)
    for nodes, leaves in ((1, 0), (4, 5), (3, 3)):
        with pytest.raises(ValueError, match=f"trees of {nodes} nodes have {leaves} leaves"):
            compiled.scores(
                one, np.zeros((1, nodes), np.int32), np.zeros((1, nodes), np.int16), np.zeros((1, leaves), np.int16), 0
            )


@pytest.mark.parametrize("name", ["crawl2llm_native.pyx", "bounds.pxi", "measures.pxi", "text.pxi"])
def test_one_that_was_built_from_another_source_is_refused(name: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "scripts/ingest/native" / name
    source.write_text(source.read_text() + "# another line\n")
    done = subprocess.run(
        [sys.executable, "-c", "import scripts.ingest.markup"], cwd=tmp_path, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (
        done.returncode == 1 and f"was built from another version of {source.parent}: run `make install`" in done.stderr
    )


def test_nothing_but_its_source_lies_beside_it() -> None:
    """What a build left there would be part of a step's fingerprint."""
    found = {path.name for path in (ROOT / "scripts/ingest/native").rglob("*") if "__pycache__" not in path.parts}
    assert found == {"crawl2llm_native.pyx", "bounds.pxi", "measures.pxi", "text.pxi", "pyproject.toml", "setup.py"}
