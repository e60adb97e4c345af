"""Blocks of a page as text, by lines: paragraphs apart, list items and rows of tables one below the other, code as it stands."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from crawl2llm.stages.ingest.markup import Markup
from crawl2llm.stages.ingest.tags import CODE, WITHIN

SPACED_BLOCKS = frozenset(
    CODE[name]
    for name in ("p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "figure", "article", "section")
)
ITEM, DATA, HEADER, ROW, ORDERED = CODE["li"], CODE["td"], CODE["th"], CODE["tr"], CODE["ol"]
CELLS = frozenset([DATA, HEADER])
WITHIN_CELL = WITHIN["td"] | WITHIN["th"]
HEAD, FOOT = CODE["thead"], CODE["tfoot"]
GROUPS = frozenset([HEAD, CODE["tbody"], FOOT])  # of rows
MOST_MOVED = 20  # of these on a page that are written in another place than they have
WRAPPERS = frozenset(
    CODE[name] for name in ("p", "div", "center", "section", "article")
)  # what may lie between a cell and its text
MOST_WRAPPERS = 4  # of these in each other
LONG = 300  # characters of a block that makes a table one for layout
BULLET, CELL = "• ", " | "
NO_ATTRIBUTES: dict[str, str] = {}
KINDS = frozenset("1aAiI")  # values of `type` of an ordered list or its item
INTEGER = re.compile(r"[ \t\n\f\r]*([+-]?[0-9]+)")
LARGEST = 2**31 - 1
ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"),
    (4, "iv"), (1, "i"),
)  # fmt: skip


def list_marks(markup: Markup) -> dict[int, str]:
    """The mark of each item of an ordered list, `5.` or `c.`, by its element.

    By https://html.spec.whatwg.org/multipage/grouping-content.html#ordinal-value.
    """
    if ORDERED not in markup.code:
        return {}
    out: dict[int, str] = {}
    items = [
        node for node, code in enumerate(markup.code) if code == ITEM and markup.code[markup.parent[node]] == ORDERED
    ]
    count = Counter(markup.parent[node] for node in items) if markup.numbered else {}
    following: dict[int, int] = {}  # the number of a list's next item
    for node in items:
        around = markup.parent[node]
        of_list, of_item = markup.numbered.get(around, NO_ATTRIBUTES), markup.numbered.get(node, NO_ATTRIBUTES)
        backwards = "reversed" in of_list
        number = _parse_integer(of_item.get("value", ""))
        if number is None:
            number = following.get(around)
        if number is None:
            number = _parse_integer(of_list.get("start", ""))
        if number is None:
            number = count[around] if backwards else 1
        following[around] = number - 1 if backwards else number + 1
        kind = of_item.get("type", "")
        out[node] = f"{_list_numeral(number, kind if kind in KINDS else of_list.get('type', ''))}."
    return out


def _parse_integer(value: str) -> int | None:
    """What HTML's rules for parsing integers say; None for none, or one that browsers cannot hold."""
    match = INTEGER.match(value)
    number = int(match.group(1)) if match else LARGEST + 1
    return number if abs(number) <= LARGEST else None


def _list_numeral(number: int, kind: str) -> str:
    """A number as a list of this `type` shows it: letters from 1 on, Roman numerals from 1 to 3999, else digits."""
    if kind in ("a", "A") and number > 0:
        letters = ""
        while number:
            number, letter = divmod(number - 1, 26)
            letters = chr(ord(kind) + letter) + letters
        return letters
    if kind in ("i", "I") and 0 < number < 4000:
        roman = ""
        for value, letters in ROMAN:
            roman += letters * (number // value)
            number %= value
        return roman.upper() if kind == "I" else roman
    return str(number)


def blocks_in_order(markup: Markup, kept: Sequence[int]) -> Sequence[int]:
    """The same blocks in the order in which they are shown: the head of a table before its other rows, and the foot behind them."""
    if HEAD not in markup.code and FOOT not in markup.code:
        return kept
    first, last = markup.first, markup.last
    begin: dict[int, int] = {}  # the first block of a table's rows
    moved = []
    for node, code in enumerate(markup.code):
        if code in GROUPS and first[node] < last[node]:
            table = markup.parent[node]
            if (code == HEAD and table in begin) or (code == FOOT and last[node] < last[table]):
                moved.append(node)
            begin.setdefault(table, first[node])
    order = list(kept)
    for node in moved[:MOST_MOVED]:
        table = markup.parent[node]
        group = [number for number in order if first[node] <= number < last[node]]
        order = [number for number in order if not first[node] <= number < last[node]]
        rows = [at for at, number in enumerate(order) if begin[table] <= number < last[table]]
        if rows:
            at = rows[0] if markup.code[node] == HEAD else rows[-1] + 1
            order[at:at] = group
    return order


def cell_of(markup: Markup, node: int) -> int:
    """The cell that a block's element is or that lies around it, with nothing but WRAPPERS between; 0 for none."""
    if not markup.bits[node] & WITHIN_CELL:
        return 0
    for _ in range(MOST_WRAPPERS):
        if markup.code[node] not in WRAPPERS:
            break
        node = markup.parent[node]
    return node if markup.code[node] in CELLS else 0


def lone_cells(markup: Markup, kept: Sequence[int]) -> dict[int, int]:
    """The cell of each block that is the only one in it, and short."""
    if DATA not in markup.code and HEADER not in markup.code:
        return {}
    cells = [(number, cell_of(markup, markup.node[number])) for number in kept if len(markup.text[number]) <= LONG]
    first, last = markup.first, markup.last
    return {
        number: cell
        for number, cell in cells
        if cell and bisect_left(kept, last[cell]) - bisect_left(kept, first[cell]) == 1
    }


def _self_or_parent(markup: Markup, node: int, wanted: int) -> int:
    """The element itself, or the one around it, if it is of the wanted kind, else -1."""
    if markup.code[node] == wanted:
        return node
    return markup.parent[node] if markup.code[markup.parent[node]] == wanted else -1


def plain_text(markup: Markup, kept: Sequence[int]) -> str:
    """The blocks of these numbers, which ascend."""
    out: list[str] = []
    marks = list_marks(markup)
    cells = lone_cells(markup, kept)
    in_row = Counter(markup.parent[cell] for cell in cells.values())
    previous = before = -1  # the block written last, and its list item
    row = -1  # the row of cells that it is of, if it is not the first of them
    for number in blocks_in_order(markup, kept):
        node = markup.node[number]
        code = markup.code[node]
        item = _self_or_parent(markup, node, ITEM)
        line = markup.text[number]
        if in_row and number in cells and in_row[markup.parent[cells[number]]] > 1:
            line = line.replace("\n", " ")  # a row stays one line
        if previous >= 0:
            last = markup.node[previous]
            cell, previous_cell = cells.get(number, node), cells.get(previous, last)
            of_cells = markup.code[cell] in CELLS and markup.code[previous_cell] in CELLS and cell != previous_cell
            if of_cells and markup.parent[cell] == markup.parent[previous_cell]:
                out.append(CELL)
                row = markup.parent[cell]
            elif (
                of_cells
                and row == markup.parent[previous_cell]
                and _table_of_cell(markup, cell) == _table_of_cell(markup, previous_cell)
            ) or (item >= 0 and before >= 0 and (item == before or markup.parent[item] == markup.parent[before])):
                out.append("\n")
            elif last != node and (
                code in SPACED_BLOCKS or markup.code[last] in SPACED_BLOCKS or (item < 0) != (before < 0)
            ):
                out.append("\n\n")
            else:
                out.append("\n")
        if item >= 0 and markup.first[item] == number:
            line = (f"{marks[item]} " if item in marks else BULLET) + line
        out.append(line)
        previous, before = number, item
    return "".join(out)


def _table_of_cell(markup: Markup, cell: int) -> int:
    return markup.parent[markup.parent[markup.parent[cell]]]
