"""Which blocks of a page are its main text: two forests of small trees, fitted on pages with gold text by benchmarks/fit_blocks.py.

The first judges each block by what `measures` says of it; the second sees the first one's scores of the blocks beside and around it too.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from scripts.ingest import render
from scripts.ingest.forest import Forest
from scripts.ingest.markup import HIDDEN, WITHIN, Markup, read
from scripts.ingest.measures import Page, table

FITTED = Path(__file__).with_name("blocks.json")


ASIDE = WITHIN["nav"] | WITHIN["footer"] | WITHIN["aside"] | WITHIN["form"] | HIDDEN
MOST = 50_000  # blocks: 0.4 s, and 150 MB of measures; of 2,700 real pages the largest has 6,000


class TooManyBlocks(ValueError):
    """A page of over MOST blocks."""


@cache
def _forests() -> tuple[Forest, Forest, frozenset[str]]:
    stored = json.loads(FITTED.read_text(encoding="utf-8"))
    first, second = Forest.of(stored["first"]), Forest.of(stored["second"])
    return first, second, frozenset(first.names) | frozenset(second.names)


def kept(markup: Markup) -> list[int]:
    """The numbers of the blocks that are main text, in order.

    Where no block is, as on a page of a few words, those that are not mostly links and not in ASIDE.
    """
    first, second, wanted = _forests()
    page = Page(markup)
    measures = page.first(wanted)
    measures |= page.second(first.scores(table(measures, first.names)))
    scores = second.scores(table(measures, second.names))
    good = scores > 0
    if not good.any():
        good = (page.linked * 2 < page.length) & (page.bits[page.above[0]] & ASIDE == 0)
    return [int(number) for number in good.nonzero()[0]]


def text(parts: list[str], main: bool) -> str:
    """The main text, or with `main` off all text, of a page that `markup.tokens` has cut."""
    markup = read(parts)
    if not markup.text:
        return ""
    if len(markup.text) > MOST:
        raise TooManyBlocks(f"{len(markup.text):,} blocks, at most {MOST:,}")
    return render.text(markup, kept(markup) if main else range(len(markup.text)))
