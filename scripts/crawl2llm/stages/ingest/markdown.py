"""Blocks of a page as Markdown: headings, lists, tables, code in fences, block quotes. Links and emphasis are left as text.

By https://spec.commonmark.org/0.31.2/ and, for tables, https://github.github.com/gfm/#tables-extension-.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from crawl2llm.stages.ingest.markup import Markup
from crawl2llm.stages.ingest.render import CELLS, FOOT, HEAD, ITEM, LONG, ROW, cell_of, list_marks
from crawl2llm.stages.ingest.tags import CODE

LEVELS = 5  # of lists and quotes in each other; what is deeper is written as if it were so deep
HEADINGS = {CODE[f"h{level}"]: "#" * level for level in range(1, 7)}
PRE, QUOTE, TABLE, CAPTION = CODE["pre"], CODE["blockquote"], CODE["table"], CODE["caption"]
# What a line of a paragraph may begin with and Markdown would take for something else. A backslash goes before the last character.
MARKDOWN_SYNTAX = re.compile(
    r"(?m)^ *(?:#(?=#{0,5}(?:\s|$))|>|[-+*](?=\s|$)|[0-9]{1,9}[.)](?=\s|$)|[`~](?=``|~~)|[-=_*](?=[-=_* ]*$)|\|)"
)
FENCES = re.compile("^ *(`{3,})", re.MULTILINE)


def _escape_text(text: str) -> str:
    return MARKDOWN_SYNTAX.sub(lambda match: match.group()[:-1] + "\\" + match.group()[-1], text)


def _table_rows(markup: Markup, kept: Sequence[int], table_of: list[int]) -> dict[int, list[list[str]]]:
    """The rows of what can be written as a table, by its element: at least two columns, and one block of plain text in a cell."""

    def place_in_table(row: int) -> int:  # as it is shown: the head first, the foot last
        return {HEAD: 0, FOOT: 2}.get(markup.code[markup.parent[row]], 1)

    text_of: dict[int, str] = {}
    tables: set[int] = set()
    odd_tables: set[int] = set()  # tables that are no such
    for number in kept:
        node = markup.node[number]
        if not (table := table_of[node]):
            continue
        cell = cell_of(markup, node)
        tables.add(table)
        if not cell or cell in text_of or markup.code[node] in HEADINGS or markup.code[node] == PRE:
            odd_tables.add(table)
        else:
            if len(markup.text[number]) > LONG:
                odd_tables.add(table)
            text_of[cell] = " ".join(markup.text[number].split()).replace("|", "\\|")
    odd_tables |= {table_of[markup.parent[table]] for table in tables}
    plain = tables - odd_tables
    rows: dict[int, dict[int, list[str]]] = {}
    for cell, code in enumerate(markup.code):
        if code in CELLS and markup.code[row := markup.parent[cell]] == ROW and table_of[cell] in plain:
            rows.setdefault(table_of[cell], {}).setdefault(row, []).append(text_of.get(cell, ""))
    filled = {
        table: [rows_of_table[row] for row in sorted(rows_of_table, key=place_in_table) if any(rows_of_table[row])]
        for table, rows_of_table in rows.items()
    }
    return {table: each for table, each in filled.items() if max(map(len, each), default=0) > 1}


def _tables_and_lists(markup: Markup) -> tuple[list[int], list[tuple[int, ...]]]:
    """For each element: the table that it is or lies in, or 0 (of a caption, that around its table); the items and quotes around it, the
    outermost first, at most LEVELS.
    """
    tables = [0]
    lists: list[tuple[int, ...]] = [()]
    for node in range(1, len(markup.parent)):
        code, above = markup.code[node], markup.parent[node]
        if code == TABLE:
            tables.append(node)
        else:  # a caption is written before its table
            tables.append(tables[markup.parent[above] if code == CAPTION else above])
        deeper = code in (ITEM, QUOTE) and len(lists[above]) < LEVELS
        lists.append((*lists[above], node) if deeper else lists[above])
    return tables, lists


def _format_table(rows: list[list[str]]) -> str:
    columns = max(map(len, rows))
    cells = [rows[0] + [""] * (columns - len(rows[0])), ["---"] * columns, *rows[1:]]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _format_block(markup: Markup, number: int) -> str:
    """A block that is not of a table."""
    node, line = markup.node[number], markup.text[number]
    code = markup.code[node]
    if code == PRE:
        fence = "`" * max([3, *(len(ticks) + 1 for ticks in FENCES.findall(line))])
        return f"{fence}\n{line}\n{fence}"
    if mark := HEADINGS.get(code) or HEADINGS.get(markup.code[markup.parent[node]]):
        return f"{mark} {' '.join(line.split())}"
    return _escape_text(line)


def _line_prefixes(
    markup: Markup, around: Sequence[int], marks: dict[int, str], width: dict[int, int]
) -> tuple[str, str]:
    """What the first line of a block begins with, and each other. around: its items and quotes. width: of the mark of each item that has
    begun; those that begin here are added.
    """
    first = prefix = ""
    for element in around:
        if markup.code[element] == QUOTE:
            first, prefix = first + "> ", prefix + "> "
            continue
        mark = ""
        if element not in width:
            mark = f"{marks.get(element, '-')} "
            width[element] = len(mark)
        first, prefix = first + mark.ljust(width[element]), prefix + " " * width[element]
    return first, prefix


def markdown_text(markup: Markup, kept: Sequence[int]) -> str:
    """The blocks of these numbers, in order."""
    marks = list_marks(markup)
    table_of, lists = _tables_and_lists(markup)
    tables = _table_rows(markup, kept, table_of)
    width: dict[int, int] = {}
    done: set[int] = set()
    out: list[str] = []
    before = ""  # what a line of the block before begins with
    listed = False  # whether it was in a list
    for number in kept:
        node = markup.node[number]
        table = table_of[node]
        if table in done:
            continue
        if table in tables:
            done.add(table)
            line = _format_table(tables[table])
            node = markup.parent[table]
        else:
            line = _format_block(markup, number)
        items_begun = len(width)
        first, prefix = _line_prefixes(markup, lists[node], marks, width)
        if out:
            quotes = os.path.commonprefix([before, prefix]).rstrip()  # noqa: RUF071 - characters are meant
            out.append("\n" if len(width) > items_begun and listed else f"\n{quotes}\n")
        out.append(first + line.replace("\n", f"\n{prefix}"))
        before, listed = prefix, any(markup.code[element] == ITEM for element in lists[node])
    return "".join(out)
