"""Main text by blocks: what goes and what stays, on any page, in whole numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.ingest import blocks
from scripts.ingest.forest import TOGETHER, Forest
from scripts.ingest.markup import BLOCKS, read, tokens
from scripts.ingest.measures import MOST, Page, table

SENTENCES = (
    "The river rose by two metres in the night, and the lower streets were under water by six o'clock in the morning.",
    "Nobody was hurt, the mayor said, but about forty families had to leave their houses and stay with friends or relatives.",
    "The bridge, which was built in 1911, will stay closed until engineers have looked at its piers, she added.",
    "Rain is expected to end on Thursday; until then the fire brigade asks people to keep away from the banks.",
)
NAV = "".join(
    f"<li><a href='/{name}'>{name}</a></li>" for name in ("Home", "News", "Sport", "Culture", "Weather", "Contact")
)
RELATED = "".join(
    f"<li><a href='/{number}'>Another story that you may like, number {number}</a></li>" for number in range(8)
)
PAGE = f"""<html><head><title>Flood</title></head><body><header><nav class="main-menu"><ul>{NAV}</ul></nav></header>
<div class="content"><article class="article"><h1>Lower town under water</h1>
<div class="share-bar"><a href="#">Facebook</a> <a href="#">Twitter</a></div>
<div class="article-body">{"".join(f"<p>{sentence} {sentence[:60]}</p>" for sentence in SENTENCES)}
<h2>What happens next</h2><p>{SENTENCES[3]} {SENTENCES[0]}</p></div></article>
<div class="related-stories"><h3>Related stories</h3><ul>{RELATED}</ul></div>
<div id="comments"><h3>3 comments</h3><div class="comment"><span>anna</span> <p>Terrible.</p> <a href="#">Reply</a></div></div></div>
<aside class="sidebar"><h4>Most read</h4><ul>{RELATED}</ul></aside>
<footer class="footer">Copyright 2024 <a href="/imprint">Imprint</a></footer></body></html>"""


def main_text(page: str, main: bool = True) -> str:
    return blocks.text(tokens(page), main)


def test_what_stays_and_what_goes() -> None:
    text = main_text(PAGE)
    assert all(sentence in text for sentence in SENTENCES)
    for gone in ("Weather", "Facebook", "Another story", "Reply", "Most read", "Imprint"):
        assert gone not in text, gone
    every = main_text(PAGE, main=False)
    assert all(each in every for each in (*SENTENCES, "Weather", "Most read", "Imprint"))


@pytest.mark.parametrize("page", ["", "<html></html>", "<p>words", "x", "<a href=x>y</a>", "<p>" * 50])
def test_the_smallest_pages(page: str) -> None:
    assert main_text(page) in ("", "words", "x", "y")


def test_too_many_blocks() -> None:
    with pytest.raises(blocks.TooManyBlocks, match="50,001 blocks, at most 50,000"):
        main_text("<p>x" * 50_001)


PIECE = st.sampled_from([
    *(f"<{name}>" for name in BLOCKS), *(f"</{name}>" for name in BLOCKS), "<a href=x>link", "</a>", "<br>", SENTENCES[0],
    "Words, few. ", "漢字。", "é", "\U0001f600",
    "<div class='sidebar ad'>", "<div style='display:none'>", "&nbsp;", "\x00", "1 234",
])  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECE, max_size=40))
def test_any_page(pieces: list[str]) -> None:
    """Blocks in their order, each as it is; the same again; and all measures are whole numbers within their bounds."""
    parts = tokens("".join(pieces))
    markup = read(parts)
    text = blocks.text(parts, True)
    assert text == blocks.text(parts, True)
    if not markup.text:
        assert text == ""
        return
    assert all(
        line in "\n".join(markup.text)
        for line in text.replace(" | ", "\n").replace("• ", "").split("\n")
        if ". " not in line
    )
    page = Page(markup)
    first = page.first()
    rows = table(first, list(first))
    assert len(first) > 200 and rows.shape == (len(first), len(markup.text)) and abs(rows).max() <= MOST
    second = page.second(rows[0].astype(np.int64))
    assert all(row.dtype == np.int64 for row in (*first.values(), *second.values()))


def naive(stored: dict[str, object], row: list[int]) -> int:
    """The score of one block, tree by tree."""
    total = stored["base"]
    for tree in stored["trees"]:  # type: ignore[attr-defined]
        place = 0
        while place < len(tree["measures"]):
            place = 2 * place + 1 + (row[tree["measures"][place]] > tree["limits"][place])
        total += tree["leaves"][place - len(tree["measures"])]
    return total  # type: ignore[return-value]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**31))
def test_a_forest_is_its_trees(depth: int, trees: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    inner, measures = 2**depth - 1, 5
    stored = {
        "names": list("abcde"), "base": int(random.integers(-99, 99)),
        "trees": [
            {
                "measures": random.integers(0, measures, inner).tolist(), "limits": random.integers(-3, 3, inner).tolist(),
                "leaves": random.integers(-99, 99, inner + 1).tolist(),
            }
            for _ in range(trees)
        ],
    }  # fmt: skip
    rows = random.integers(-4, 4, (measures, TOGETHER + 3)).astype(np.int16)
    scores = Forest.of(stored).scores(rows)
    for number in (0, 1, TOGETHER - 1, TOGETHER, TOGETHER + 2):
        assert scores[number] == naive(stored, rows[:, number].tolist())


def test_what_is_fitted_are_whole_numbers_that_fit() -> None:
    stored = json.loads(blocks.FITTED.read_text(encoding="utf-8"))
    for forest in stored.values():
        numbers = [
            number for tree in forest["trees"] for name in ("limits", "leaves", "measures") for number in tree[name]
        ]
        assert all(type(number) is int and abs(number) <= MOST for number in [*numbers, forest["base"]])
