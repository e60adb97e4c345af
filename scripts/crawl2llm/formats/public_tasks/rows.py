"""Rows of public tasks' files: the columns that a preset's definition expects, and an id for each."""

from __future__ import annotations

from collections import Counter

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical_json
from crawl2llm.formats.documents import document_id
from crawl2llm.formats.public_tasks.presets import Layout, Preset
from crawl2llm.formats.public_tasks.task_files import Row, check_row, numbered_rows

CORE = "core"


Files = list[tuple[str, bytes]]


def rows_in_layout(files: Files, preset: Preset) -> list[Row]:
    """The rows of files in the columns that the preset's definition expects.

    Each file has one of the preset's layouts throughout: that of which its first row has all columns. Raises InputError for a file of none.
    """
    converted = []
    for display_name, data in files:
        rows = list(numbered_rows(display_name, data))
        if not rows:
            raise InputError(f"{display_name}: no rows")
        layout = fitting_layout(display_name, rows[0][1], preset)
        for number, row in rows:
            check_row(display_name, number, row, layout.columns)
            converted.append(layout.row(row))
    return converted


def fitting_layout(display_name: str, row: Row, preset: Preset) -> Layout:
    """The layout of which a row has all columns. Raises InputError that names what every layout lacks."""
    for layout in preset.layouts:
        if layout.columns.keys() <= row.keys():
            return layout
    wanted = " or ".join(", ".join(layout.columns) for layout in preset.layouts)
    raise InputError(f"{display_name}, line 1: columns {', '.join(sorted(row))}; this task needs {wanted}")


def usable_files(files: Files, preset: Preset) -> Files:
    """The first of files of the same task that has one of its layouts, or the first of all, which then says what is wrong with it.

    Other tools lay out the same data in other columns under the same name.
    """
    for file in files:
        first = next(numbered_rows(*file), None)
        if first and any(layout.columns.keys() <= first[1].keys() for layout in preset.layouts):
            return [file]
    return files[:1]


def row_ids(task: str, rows: list[Row]) -> list[str]:
    """An id for each row, of what it holds; equal rows are told apart by how many are before them."""
    seen = Counter[str]()
    identifiers = []
    for row in rows:
        text = canonical_json(row)
        identifiers.append(document_id(task, text, str(seen[text])))
        seen[text] += 1
    return identifiers
