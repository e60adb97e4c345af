"""Blocks of a page as text, by lines: paragraphs apart, list items and rows of tables one below the other, code as it stands."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.ingest.markup import Markup
from scripts.ingest.tags import CODE

APART = frozenset(
    CODE[name]
    for name in ("p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "figure", "article", "section")
)
ITEM, CELLS, ROW, ORDERED = CODE["li"], frozenset([CODE["td"], CODE["th"]]), CODE["tr"], CODE["ol"]
BULLET, CELL = "• ", " | "


def list_numbers(markup: Markup) -> dict[int, int]:
    """The number of each item of an ordered list, by its element."""
    out: dict[int, int] = {}
    count: dict[int, int] = {}
    for node, code in enumerate(markup.code):
        if code == ITEM and markup.code[around := markup.parent[node]] == ORDERED:
            out[node] = count[around] = count.get(around, 0) + 1
    return out


def _around(markup: Markup, node: int, wanted: int) -> int:
    """The element itself, or the one around it, if it is of the wanted kind, else -1."""
    if markup.code[node] == wanted:
        return node
    return markup.parent[node] if markup.code[markup.parent[node]] == wanted else -1


def text(markup: Markup, kept: Sequence[int]) -> str:
    """The blocks of these numbers, in order."""
    out: list[str] = []
    numbers = list_numbers(markup) if ORDERED in markup.code else {}
    previous = before = -1  # the block written last, and its list item
    for number in kept:
        node = markup.node[number]
        code = markup.code[node]
        item = _around(markup, node, ITEM)
        line = markup.text[number]
        if previous >= 0:
            last = markup.node[previous]
            if (
                code in CELLS
                and markup.code[last] in CELLS
                and markup.parent[node] == markup.parent[last]
                and last != node
            ):
                out.append(CELL)
            elif item >= 0 and before >= 0 and (item == before or markup.parent[item] == markup.parent[before]):
                out.append("\n")
            elif last != node and (code in APART or markup.code[last] in APART or (item < 0) != (before < 0)):
                out.append("\n\n")
            else:
                out.append("\n")
        if item >= 0 and markup.first[item] == number:
            line = (f"{numbers[item]}. " if item in numbers else BULLET) + line
        out.append(line)
        previous, before = number, item
    return "".join(out)
