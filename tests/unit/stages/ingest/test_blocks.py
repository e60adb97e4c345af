"""Main text by blocks: what goes and what stays, on any page, in whole numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import fit_blocks
from crawl2llm.stages.ingest import blocks, compiled, measures
from crawl2llm.stages.ingest.forest import Forest
from crawl2llm.stages.ingest.markup import parse_page, read_markup
from crawl2llm.stages.ingest.tags import BLOCKS, CODE

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
    return blocks.page_text(parse_page(page), main)


def test_what_stays_and_what_goes() -> None:
    text = main_text(PAGE)
    assert all(sentence in text for sentence in SENTENCES)
    for gone in ("Weather", "Facebook", "Another story", "Reply", "Most read", "Imprint"):
        assert gone not in text, gone
    every = main_text(PAGE, main=False)
    assert all(each in every for each in (*SENTENCES, "Weather", "Most read", "Imprint"))


def reference(many: int) -> str:
    """A page of a reference: functions with a signature, a sentence, tables of what they take and return, and examples."""
    functions = "".join(
        f"""<dl><dt><a name="f{number:04}"><b>cell_{number:04}</b></a>(place, *, slow=False)</dt><dd><p>Move a cell, as
<a href="https://example.org/other.html#f{number + 1:04}">cell_{number + 1:04}</a> does.</p><h4>Parameters</h4>
<pre>place : int\n    Column {number:04}, counted from 0.\nslow : bool\n    One column at a time.</pre><h4>Returns</h4>
<pre>int\n    Where it was.</pre><h4>See Also</h4><p>cells</p><h4>Examples</h4><pre>&gt;&gt;&gt; from grid import cell_{number:04}
&gt;&gt;&gt; cell_{number:04}(4)\n3</pre></dd></dl>"""
        for number in range(many)
    )
    return f"""<html><body><header><nav class="navigation"><ul>{NAV}</ul></nav></header><main><article class="content"><h1>grid</h1>
<p>Cells of a grid, and what moves them.</p><section class="functions"><h2>Functions</h2>{functions}</section></article></main>
<footer class="footer"><p>Rendered today.</p></footer></body></html>"""


def test_a_long_reference_keeps_as_much_as_a_short_one() -> None:
    """Hardly any page with gold text has more than 50,000 characters of it: a longer one must not be judged by its size."""
    kept = {}
    for many in (200, 2000):
        page = reference(many)
        text = main_text(page)
        kept[many] = len(text) / len(main_text(page, main=False))
        assert sum(f"cell_{number:04}(place" in text for number in range(many)) > 0.9 * many
        assert "Weather" not in text
    assert min(kept.values()) > 0.75 and kept[2000] > kept[200] - 0.03


def test_no_measure_says_how_large_the_page_is() -> None:
    """A block in the middle looks the same on a page ten times as long, but for shares of the page and for where it stands."""
    shares = ("share", "prose", "make text", "place", "text before", "main density", "page density")
    looks = []
    for many in (300, 3000):
        markup = read_markup(parse_page(reference(many)))
        names, _ = measures.measure_names()
        rows = np.empty((len(names), len(markup.text)), np.int16)
        measures.compiled_page(markup).first({name: row for row, name in enumerate(names)}, rows)
        middle = next(
            number for number, text in enumerate(markup.text) if text.startswith(f"cell_{many // 2:04}(place")
        )
        looks.append(
            {name: int(row[middle]) for name, row in zip(names, rows, strict=True) if not name.startswith(shares)}
        )
    far = {name for name, value in looks[0].items() if abs(value - looks[1][name]) > 2}
    assert not far, far


@pytest.mark.parametrize("page", ["", "<html></html>", "<p>words", "x", "<a href=x>y</a>", "<p>" * 50])
def test_the_smallest_pages(page: str) -> None:
    assert main_text(page) in ("", "words", "x", "y")


def test_too_many_blocks() -> None:
    with pytest.raises(blocks.BlockLimitError, match="50,001 blocks, at most 50,000"):
        main_text("<p>x" * 50_001)


PIECE = st.sampled_from([
    *(f"<{name}>" for name in BLOCKS), *(f"</{name}>" for name in BLOCKS), "<a href=x>link", "</a>", "<br>", SENTENCES[0],
    "Words, few. ", "漢字。", "é", "\U0001f600",
    "<div class='sidebar ad'>", "<div style='display:none'>", "&nbsp;", "\x00", "1 234",
])  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECE, max_size=40))
def test_any_page(pieces: list[str]) -> None:
    """Blocks in their order, each as it is; the same again."""
    tree = parse_page("".join(pieces))
    markup = read_markup(tree)
    text = blocks.page_text(tree, True)
    assert text == blocks.page_text(tree, True)
    if not markup.text:
        assert text == ""
        return
    assert all(
        line in "\n".join(markup.text)
        for line in text.replace(" | ", "\n").replace("• ", "").split("\n")
        if ". " not in line
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-900, 900), st.integers(1, 2000)), min_size=1, max_size=30))
def test_the_cut_is_the_best_of_all(found: list[tuple[int, int]]) -> None:
    """No other least score has a higher F measure, up to a millionth."""
    scores, length = np.ascontiguousarray(np.array(found, np.int64).T)
    chance = 1 / (1 + np.exp(-np.clip(scores, -blocks.SURE_SCORE, blocks.SURE_SCORE) / 100))

    def measure(least: int) -> float:
        taken = scores >= least
        right, whole = (chance * length)[taken].sum(), (chance * length).sum()
        weighed = blocks.PRECISION * length[taken].sum() + blocks.RECALL * whole
        return float((blocks.PRECISION + blocks.RECALL) * right / weighed)

    assert measure(blocks.least_score(scores, length)) > max(measure(least) for least in scores.tolist()) - 2e-3


def test_chances_are_far_from_a_half() -> None:
    """So that every machine rounds them to the same thousandths, whatever the last bit of its exp."""
    exact = 1000 / (1 + np.exp(np.arange(-blocks.SURE_SCORE, blocks.SURE_SCORE + 1) / -100))
    assert (abs(exact - np.floor(exact) - 0.5) > 1e-6).all()
    assert (np.diff(blocks.CHANCE) >= 0).all() and blocks.CHANCE[blocks.SURE_SCORE] == 500


@pytest.mark.parametrize(("scores", "kept"), [([300, 250, -40, -400], 2), ([10, -20, -30, -400], 3), ([-500, -600], 1)])
def test_on_a_page_in_doubt_more_is_kept(scores: list[int], kept: int) -> None:
    found = np.array(scores, np.int64)
    assert (found >= blocks.least_score(found, np.full(len(found), 100, np.int64))).sum() == kept


def test_a_heading_stays_with_what_it_heads() -> None:
    """Two in a row too; not one before what goes, not one that is unlikely, not what is no heading."""
    names = ["h2", "h3", "p", "h3", "p", "dt", "p", "p", "p", "h2"]
    scores = np.array([-50, -20, 200, -20, -80, -150, 200, -20, 200, -20])
    code = np.array([CODE[name] for name in names])
    assert compiled.kept(scores, 1, code, blocks.HEADING, blocks.UNLIKELY_SCORE) == [0, 1, 2, 6, 8]


def test_what_does_not_fit_together_is_refused() -> None:
    three, two = np.ones(3, np.int64), np.ones(2, np.int64)
    with pytest.raises(ValueError, match="3 scores, 2 lengths and 1201 chances"):
        blocks.least_score(three, two)
    with pytest.raises(ValueError, match="0 scores, 0 lengths"):
        blocks.least_score(three[:0], three[:0])
    with pytest.raises(ValueError, match="3 scores and 2 codes"):
        compiled.kept(three, 0, two, blocks.HEADING, 0)
    with pytest.raises(ValueError, match="1000 is the code of no element"):
        compiled.kept(three, 0, 1000 * three, blocks.HEADING, 0)


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
@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 200), st.sampled_from([99, 2**15]), st.integers(0, 2**31))
def test_a_forest_is_its_trees(depth: int, trees: int, count: int, most: int, seed: int) -> None:
    """For as many blocks as go through the trees together, and for more and fewer."""
    random = np.random.default_rng(seed)
    inner, measures = 2**depth - 1, 5
    stored = {
        "names": list("abcde"), "base": int(random.integers(-99, 99)),
        "trees": [
            {
                "measures": random.integers(0, measures, inner).tolist(), "limits": random.integers(-3, 3, inner).tolist(),
                "leaves": random.integers(-most, most, inner + 1).tolist(),
            }
            for _ in range(trees)
        ],
    }  # fmt: skip
    rows = random.integers(-4, 4, (measures, count)).astype(np.int16)
    scores = Forest.from_json(stored, list("abcde")).scores(rows)
    assert len(scores) == count
    for number in {0, count // 3, min(63, count - 1), min(64, count - 1), count - 1}:
        assert scores[number] == naive(stored, rows[:, number].tolist())


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**31))
def test_the_mean_of_forests_scores_as_their_mean(members: int, seed: int) -> None:
    """But for the rounding of leaves, half a hundredth for each tree that is asked."""
    random = np.random.default_rng(seed)
    trees, measures = 3, 5
    every = [
        {
            "names": list(random.permutation(list("abcde"))), "base": int(random.integers(-99, 99)),
            "trees": [
                {
                    "measures": random.integers(0, measures, 3).tolist(), "limits": random.integers(-3, 3, 3).tolist(),
                    "leaves": random.integers(-99, 99, 4).tolist(),
                }
                for _ in range(trees)
            ],
        }
        for _ in range(members)
    ]  # fmt: skip
    rows = dict(zip("abcde", random.integers(-4, 4, (measures, 20)).astype(np.int16), strict=True))
    scores = [
        Forest.from_json(one, one["names"]).scores(np.array([rows[name] for name in one["names"]])) for one in every
    ]
    together = fit_blocks.mean_of(every)
    found = Forest.from_json(together, together["names"]).scores(np.array([rows[name] for name in together["names"]]))
    assert np.abs(found - np.mean(scores, axis=0)).max() <= 0.5 * (trees * members + 1)


def test_what_is_fitted_are_whole_numbers_that_fit() -> None:
    stored = json.loads(blocks.FOREST_FILE.read_text(encoding="utf-8"))
    for forest in stored.values():
        numbers = [
            number for tree in forest["trees"] for name in ("limits", "leaves", "measures") for number in tree[name]
        ]
        assert all(type(number) is int and abs(number) <= 32_000 for number in [*numbers, forest["base"]])
