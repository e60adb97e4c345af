"""Blocks of a page as text, by lines: paragraphs apart, list items and rows of tables one below the other, code as it stands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from scripts.ingest.markup import Markup
from scripts.ingest.tags import CODE

APART = frozenset(
    CODE[name]
    for name in ("p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "figure", "article", "section")
)
ITEM, CELLS, ROW, ORDERED = CODE["li"], frozenset([CODE["td"], CODE["th"]]), CODE["tr"], CODE["ol"]
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
    items = [node for node, code in enumerate(markup.code) if code == ITEM and markup.code[markup.parent[node]] == ORDERED]
    count = Counter(markup.parent[node] for node in items) if markup.numbered else {}
    following: dict[int, int] = {}  # the number of a list's next item
    for node in items:
        around = markup.parent[node]
        of_list, of_item = markup.numbered.get(around, NO_ATTRIBUTES), markup.numbered.get(node, NO_ATTRIBUTES)
        backwards = "reversed" in of_list
        number = _integer(of_item.get("value", ""))
        if number is None:
            number = following.get(around)
        if number is None:
            number = _integer(of_list.get("start", ""))
        if number is None:
            number = count[around] if backwards else 1
        following[around] = number - 1 if backwards else number + 1
        kind = of_item.get("type", "")
        out[node] = f"{_numeral(number, kind if kind in KINDS else of_list.get('type', ''))}."
    return out


def _integer(value: str) -> int | None:
    """What HTML's rules for parsing integers say; None for none, or one that browsers cannot hold."""
    found = INTEGER.match(value)
    number = int(found.group(1)) if found else LARGEST + 1
    return number if abs(number) <= LARGEST else None


def _numeral(number: int, kind: str) -> str:
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


def _around(markup: Markup, node: int, wanted: int) -> int:
    """The element itself, or the one around it, if it is of the wanted kind, else -1."""
    if markup.code[node] == wanted:
        return node
    return markup.parent[node] if markup.code[markup.parent[node]] == wanted else -1


def text(markup: Markup, kept: Sequence[int]) -> str:
    """The blocks of these numbers, in order."""
    out: list[str] = []
    marks = list_marks(markup)
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
            line = (f"{marks[item]} " if item in marks else BULLET) + line
        out.append(line)
        previous, before = number, item
    return "".join(out)
