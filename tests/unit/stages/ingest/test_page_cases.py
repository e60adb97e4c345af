"""Pages that came out wrong once (../shared/cases/pages): their text is what a browser shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crawl2llm.core.root import ROOT
from crawl2llm.stages.ingest.warc import Page
from tests.unit.stages.ingest.warcs import read

CASES = Path(os.environ.get("CRAWL2LLM_CASES", ROOT.parent / "shared" / "cases")) / "pages"
pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason=f"no cases at {CASES}: set CRAWL2LLM_CASES to a folder that has pages"
)
# What every paragraph of them is made of.
GEAR = (
    "The gear train of the old clock tower was repaired in the spring of last year by two watchmakers from the next town, who had to make "
    "three new wheels out of brass since the old ones were worn."
)
TWICE = f"{GEAR} {GEAR}"
XHTML = {name: [TWICE, f"MIDDLE {GEAR}", TWICE] for name in ("script", "iframe", "object", "textarea", "title")}

EXPECTED: dict[tuple[str, str], list[str]] = {
    ("button", "unclosed"): ["Menu", TWICE, f"AFTER1 {GEAR}", TWICE],
    ("button", "selfclosed"): [TWICE, f"AFTER1 {GEAR}", TWICE],
    ("button", "accordion"): [
        TWICE,
        "How is the clock wound?",
        "The clock is wound by hand once a week, on Monday mornings, by the two watchmakers, who climb the tower with a lamp.",
        TWICE,
    ],
    ("inline-as-block", "wikipedia-math"): [
        TWICE,
        "Suppose that the wheel turns at rate r, and that its teeth number n; then the second gear turns at -3r, and the third at "
        "3r/2, as the reader may check by hand.",
        TWICE,
    ],
    ("inline-as-block", "svg-icon"): [
        TWICE, "The parts were made by a firm in Basel, which had made the first clock too, and they came by rail.", TWICE,
    ],
    ("inline-as-block", "custom-element"): [
        TWICE, "The parts came from Basel, which had made the first clock too, and they came on 3 May by rail.", TWICE,
    ],
    ("inline-as-block", "button"): [TWICE, "The parts were made in Basel, which had made the first clock too. TAIL", TWICE],
    ("inline-as-block", "template"): [TWICE, "The parts were made in Basel by a firm. TAIL", TWICE],
    ("inline-as-block", "label"): [TWICE, "The parts were made in Basel a by a firm. TAIL", TWICE],
    ("inline-as-block", "noscript"): [TWICE, "The parts were made in Basel by a firm. TAIL", TWICE],
    ("script-double-escaped", "a"): [TWICE, f"AFTER {GEAR}", TWICE],
    ("nul-is-a-line-end", "nul"): [
        TWICE, "The clock was made by a firm in Basel, which had made the firstone too, and it came by rail.", TWICE,
    ],
    ("ol-start", "ol"): [
        TWICE,
        "5. the fifth item of the list that is long enough to be kept here, surely\n"
        "9. the ninth item of the list that is long enough to be kept here too",
        TWICE,
    ],
    ("layout-table", "layout-table"): [
        "menu", TWICE, "If it turns at rate r, the gear turns at -3r and the other at 3r/2. TAIL",
    ],
    **{("xhtml-empty-elements", name): texts for name, texts in XHTML.items()},
}  # fmt: skip


def pages(case: str, main: bool) -> dict[str, str]:
    """The text of each page of a case, by the end of its address."""
    found = read(CASES / case / "a.warc.gz", main_content=main)
    return {each.url.rpartition("/")[2]: each.text for each in found if isinstance(each, Page)}


@pytest.mark.parametrize(("case", "name"), EXPECTED)
def test_all_of_its_text(case: str, name: str) -> None:
    assert pages(case, main=False)[name].split("\n\n") == EXPECTED[case, name]


# Without layout-table: the forests give the short last paragraph of its cell no better than even odds, and leave it out of the main text.
@pytest.mark.parametrize(("case", "name"), [key for key in EXPECTED if "layout-table" not in key])
def test_its_main_text(case: str, name: str) -> None:
    """Paragraphs are whole, and all of them are kept."""
    text = pages(case, main=True)[name].split("\n\n")
    assert [each for each in EXPECTED[case, name] if len(each) > 30 and each not in text] == []


@pytest.mark.parametrize("main", [True, False])
def test_libraries_keep_the_indentation_of_code(main: bool) -> None:
    found = read(CASES / "resiliparse-indentation" / "a.warc.gz", main_content=main, extractor="resiliparse")
    assert [each.text.split("\n\n") for each in found if isinstance(each, Page)] == [
        [TWICE, "def f(x):\n    if x:\n        return x", TWICE]
    ]


@pytest.mark.parametrize("case", ["button", "inline-as-block", "xhtml-empty-elements"])
def test_no_page_of_it_is_left_out(case: str) -> None:
    assert {name for of, name in EXPECTED if of == case} == pages(case, main=False).keys()
