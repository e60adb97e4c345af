"""HTML into blocks of text, in one pass over its tags that makes no tree: flat lists of elements and of blocks.

A block is the text between two tags of block elements (or two `<br>`). An element knows its parent and which blocks lie within it, so that
sums over a subtree are differences of running sums. End tags that were left out are supplied as HTML does for paragraphs, list items and
tables; anything else that is misnested costs a wrong parent and no text. The work is linear in the size of the page, whatever it holds.
The pass itself is compiled: scripts/ingest/native.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from scripts.ingest import tags
from scripts.ingest.compiled import Reader

_READER = Reader(tags)


@dataclass(slots=True)
class Markup:
    """The elements and the blocks of a page, each in the order of the page.

    Elements, number 0 being the page: `parent`, `code` (number in BLOCKS), `own` and `bits` (what the element says, what it and those
    around it say), `first` and `last` (its blocks are [first, last)). Blocks: `text` (white space folded but in <pre>; a line for each
    <br>), `node` (the element), `links` and `linked` (number of links and characters in them), `marks` (inline tags).
    """

    parent: list[int]
    code: list[int]
    own: list[int]
    bits: list[int]
    first: list[int]
    last: list[int]
    text: list[str]
    node: list[int]
    links: list[int]
    linked: list[int]
    marks: list[int]


def tokens(page: str) -> list[str]:
    """A page cut at its tags: text; then for each tag, comment or raw element five parts and the text behind it (Reader.tokens)."""
    return _READER.tokens(page)


def places(parts: list[str], names: Container[str]) -> tuple[list[int], list[int]]:
    """(numbers of the raw elements, numbers of the other tags with one of these names) of a page that `tokens` has cut."""
    return _READER.places(parts, names)


def unescape(text: str) -> str:
    """The text with its character references replaced, as html.unescape, in time in proportion to its length."""
    return _READER.unescape(text)


def read(parts: list[str]) -> Markup:
    """The elements and blocks of a page that `tokens` has cut."""
    return Markup(*_READER.read(parts))
