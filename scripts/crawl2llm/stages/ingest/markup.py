"""HTML into blocks of text: flat lists of elements and of blocks, made from the tree that lexbor makes of a page.

A block is the text between two borders of block elements (or two `<br>`). An element knows its parent and which blocks lie within it, so
that sums over a subtree are differences of running sums. The tree is that of the HTML standard, with scripting off: what is in `<noscript>`
counts. The work is linear in the number of nodes. The loops are compiled: stages/ingest/native.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from crawl2llm.stages.ingest import tags
from crawl2llm.stages.ingest.compiled import Tree, make_reader, utf8

_READER = make_reader(tags)


@dataclass(slots=True)
class Markup:
    """The elements and the blocks of a page, each in the order of the page.

    Elements, number 0 being the page: `parent`, `code` (number in BLOCKS), `own_bits` and `bits` (what the element says, what it and those
    around it say), `first` and `last` (its blocks are [first, last)). Blocks: `text` (white space folded but in <pre>; a line for each
    <br>), `node` (the element), `links` and `linked` (number of links and characters in them), `marks` (inline tags). `numbered`: of those
    lists and items that say how items are numbered, by the element: its attributes of tags.ATTRIBUTES.
    """

    parent: Sequence[int]
    code: Sequence[int]
    own_bits: Sequence[int]
    bits: Sequence[int]
    first: Sequence[int]
    last: Sequence[int]
    text: list[str]
    node: Sequence[int]
    links: Sequence[int]
    linked: Sequence[int]
    marks: Sequence[int]
    numbered: dict[int, dict[str, str]]


def encode_page(page: str) -> bytes:
    """A page in UTF-8, without lone surrogates."""
    encoded: bytes = utf8(page)
    return encoded


def parse_page(page: str | bytes) -> Tree:
    """The tree of a page, or of what `encode_page` makes of it. NUL is left out of texts."""
    return _READER.parse(page if isinstance(page, bytes) else encode_page(page))


def read_markup(tree: Tree) -> Markup:
    """The elements and blocks of a page."""
    return Markup(*tree.read())


def code_lines(tree: Tree) -> set[str]:
    """The lines of a page's <pre>, without white space at their ends."""
    markup = read_markup(tree)
    if tags.CODE["pre"] not in markup.code:
        return set()
    texts = [
        text for text, node in zip(markup.text, markup.node, strict=True) if markup.bits[node] & tags.WITHIN["pre"]
    ]
    return set(map(str.rstrip, chain.from_iterable(text.split("\n") for text in texts)))
