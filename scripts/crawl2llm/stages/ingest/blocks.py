"""Which blocks of a page are its main text: two forests of small trees, fitted on pages with gold text by benchmarks/fit_blocks.py.

The first judges each block by what `measures` says of it; the second sees the first one's scores of the blocks beside and around it too.
A score is 100 times the log of the odds that a block is main text. How high it must be is decided for each page: where the forests are
sure, about even odds; on a page where they are in doubt of most, less, for to drop all that is in doubt would lose most of the main text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crawl2llm.stages.ingest import compiled, measures, render
from crawl2llm.stages.ingest.compiled import Tree
from crawl2llm.stages.ingest.forest import Forest
from crawl2llm.stages.ingest.markup import Markup, read_markup
from crawl2llm.stages.ingest.tags import CODE

FOREST_FILE = Path(__file__).with_name("blocks.json")

# Blocks: 0.1 s, and 100 MB of measures; of 3,423 real pages (docs/stages/ingest.md) the largest has 2,600, a list of a forum 21,000.
MOST_BLOCKS = 50_000


SURE_SCORE = 600  # a score from which a block counts as certain: odds of 400 to 1
# [score + SURE_SCORE]: the chance in thousandths that a block of this score is main text. None is near a half, so all machines round alike.
CHANCE = np.rint(1000 / (1 + np.exp(np.arange(-SURE_SCORE, SURE_SCORE + 1) / -100))).astype(np.int64)
UNLIKELY_SCORE = -100  # a score: odds of 1 to 2.7
HEADING = np.zeros(len(CODE) + 1, np.uint8)  # by an element's code; h1 is the title, which gold texts leave out
HEADING[[CODE[name] for name in ("h2", "h3", "h4", "h5", "h6", "dt", "caption")]] = 1
PRECISION, RECALL = 5, 2  # weights of precision and recall: see `least_score`


class BlockLimitError(ValueError):
    """A page of over MOST_BLOCKS blocks."""


@cache
def _read_forests() -> tuple[Forest, Forest, dict[str, int]]:
    """Both forests, and the row of each measure that they ask for. Raises ValueError for one that there is not."""
    stored = json.loads(FOREST_FILE.read_text(encoding="utf-8"))
    names = list(dict.fromkeys(stored["first"]["names"] + stored["second"]["names"]))
    if unknown := set(names).difference(*measures.measure_names()):
        raise ValueError(f"{FOREST_FILE} asks for measures that there are not: {', '.join(sorted(unknown))}")
    first, second = Forest.from_json(stored["first"], names), Forest.from_json(stored["second"], names)
    return first, second, {name: row for row, name in enumerate(names)}


def least_score(scores: NDArray[np.int64], length: NDArray[np.int64]) -> int:
    """The least score of main text on a page: the one with the highest F measure that can be expected.

    If the blocks over a score are kept, `right` is the number of their characters that are main text by their chances, `taken` all of
    them, and `whole` the main text of the page: the F measure is (PRECISION + RECALL) * right / (PRECISION * taken + RECALL * whole).
    See Lewis, Evaluating and optimizing autonomous text classification systems (SIGIR 1995).
    """
    return int(compiled.cut(scores, length, CHANCE, PRECISION, RECALL))


def main_blocks(markup: Markup) -> list[int]:
    """The numbers of the blocks that are main text, in order.

    They are those from the least score on (`least_score`), and each heading or defined term that one of them follows, unless it is unlikely
    by itself.
    """
    first, second, row = _read_forests()
    page = measures.compiled_page(markup)
    rows = np.empty((len(row), page.count), np.int16)
    page.first(row, rows)
    page.second(first.scores(rows), row, rows)
    scores = second.scores(rows)
    numbers: list[int] = compiled.kept(scores, least_score(scores, page.length), page.kind, HEADING, UNLIKELY_SCORE)
    return numbers


def page_text(tree: Tree, main: bool, write: Callable[[Markup, Sequence[int]], str] = render.plain_text) -> str:
    """The main text, or with `main` off all text, of a page, as `write` writes its blocks."""
    markup = read_markup(tree)
    if not markup.text:
        return ""
    if len(markup.text) > MOST_BLOCKS:
        raise BlockLimitError(f"{len(markup.text):,} blocks, at most {MOST_BLOCKS:,}")
    return write(markup, main_blocks(markup) if main else range(len(markup.text)))
