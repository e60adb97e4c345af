"""The compiled part does what its plain description says, on any text, and is refused where its source is another one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl2llm.stages.ingest import compiled
from crawl2llm.stages.ingest.markup import parse_page, read_markup

ROOT = Path(__file__).resolve().parents[4]
TAGS = "<p> </p> <pre> </pre> <ul> <li> </ul> <table> <td> </table> <svg> </svg> <x-y> </x-y> <br> <a href=x> </a> <select> </select>"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([*TAGS.split(), "x", "\n", "é\U0001f600", "\ud800"]) | st.text(max_size=5), max_size=60)
)
def test_any_page_makes_elements_and_blocks(pieces: list[str]) -> None:
    found = read_markup(parse_page("".join(pieces)))
    elements, blocks = len(found.parent), len(found.text)
    assert {len(each) for each in (found.code, found.own_bits, found.bits, found.first, found.last)} == {elements}
    assert {len(each) for each in (found.node, found.links, found.linked, found.marks)} == {blocks}
    assert all(found.parent[number] < number for number in range(1, elements))
    assert all(0 <= first <= last <= blocks for first, last in zip(found.first, found.last, strict=True))
    assert all(0 <= node < elements for node in found.node) and all(found.text)


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from([*" \t\n\x1c\u00a0\u3000\x85ab", "é", "\U0001f600", "<br>", "<b>"]), max_size=30))
def test_white_space_is_folded(pieces: list[str]) -> None:
    lines = [" ".join(line.split()) for line in "".join(pieces).replace("<b>", "").split("<br>")]
    found = [line for text in read_markup(parse_page("<p>" + "".join(pieces))).text for line in text.split("\n")]
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


def test_more_trees_than_a_sum_has_room_for_are_refused() -> None:
    none = np.zeros((60_001, 1), np.int16)
    with pytest.raises(ValueError, match="60001 trees, at most 60000"):
        compiled.scores(none[:1], none.astype(np.int32), none, np.zeros((60_001, 2), np.int16), 0)


@pytest.mark.parametrize("name", compiled.NAMES)
def test_one_that_was_built_from_another_source_is_refused(name: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "scripts/crawl2llm/stages/ingest/native" / name
    source.write_text(source.read_text() + "# another line\n")
    done = subprocess.run(
        [sys.executable, "-c", "import crawl2llm.stages.ingest.markup"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "scripts")}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (
        done.returncode == 1 and f"was built from another version of {source.parent}: run `make install`" in done.stderr
    )


IMPORT = "import crawl2llm.stages.ingest.markup"
# The package tells of its tree what is true of the tree of another page.
OTHER = """
from selectolax.lexbor import LexborHTMLParser as Real
from crawl2llm.stages.ingest import compiled

class Root:
    def __init__(self, page):
        self.parsed, self.other = Real(page), Real(page.replace({old!r}, {new!r}))

    def traverse(self, **options):
        return self.other.root.traverse(**options)

    def __getattr__(self, name):
        return getattr(self.parsed.root, name)

class Parser(Real):
    def __init__(self, page):
        super().__init__(page)
        self.held = Root(page)
    root = property(lambda self: self.held)

compiled.LexborHTMLParser = Parser
"""
TEXTS, VALUES, NAMES, ATTRIBUTES, NODES = (
    ("b &amp; c", "b"), ("id=b", "id=c"), ("<div", "<p"), ("<span id=b", "<span itemprop=b"), ("</svg>", "<b></svg>"),
)  # fmt: skip


def refused(before: str) -> str:
    """What is said when pages are to be read after this."""
    done = subprocess.run(
        [sys.executable, "-c", before + "\n" + IMPORT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    return done.stderr.rpartition("NotBuiltError: ")[2]


def test_another_selectolax_is_refused() -> None:
    said = refused("import selectolax; selectolax.__version__ = '9.9.9'")
    assert said.startswith("selectolax is of version 9.9.9, and must be 1.0.2: run `make install`")
    assert refused("import sys; sys.modules['selectolax.lexbor'] = None").startswith(
        "selectolax is not installed: run `make install`"
    )


@pytest.mark.parametrize(("old", "new"), [TEXTS, VALUES, NAMES, ATTRIBUTES, NODES])
def test_trees_that_are_not_what_they_must_be_are_refused(old: str, new: str) -> None:
    assert refused(OTHER.format(old=old, new=new)).startswith(
        "the trees of selectolax 1.0.2 cannot be read: selectolax has"
    )


def test_nothing_but_its_source_lies_beside_it() -> None:
    """What a build left there would be part of a step's fingerprint."""
    found = {
        path.name
        for path in (ROOT / "scripts/crawl2llm/stages/ingest/native").rglob("*")
        if "__pycache__" not in path.parts
    }
    assert found == {*compiled.NAMES, "pyproject.toml", "setup.py"}
