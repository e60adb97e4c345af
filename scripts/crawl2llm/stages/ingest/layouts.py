"""Which columns of a row hold its text, address, date and so on: by a source's own keys, or by the layout of a known data set.

A column is a name, or a path into nested columns: `meta.url`. Layouts are as their data sets' cards on the Hugging Face hub show them.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from crawl2llm.stages.ingest.settings import TextSource
from crawl2llm.stages.ingest.warc import clean_verbatim, tidy

LONGEST = 1000  # characters of a value that is kept as metadata
DEEPEST = 32  # lists within lists
LONE = re.compile("[\ud800-\udfff]")  # half of a pair of UTF-16, which is no character


@dataclass(frozen=True)
class Layout:
    """Where things are in a row. Of several columns the first that a row has counts. required: those without which a file is not read.

    verbatim: the text keeps its spaces and blank lines, which of code are part of it. structured: it is a tree of sections.
    """

    text: tuple[str, ...] = ("text",)
    id: tuple[str, ...] = ()
    url: tuple[str, ...] = ("url",)
    date: tuple[str, ...] = ("date",)
    title: tuple[str, ...] = ("title",)
    metadata: dict[str, tuple[str, ...]] = field(default_factory=dict)
    verbatim: bool = False
    structured: bool = False
    required: tuple[str, ...] = ()

    def columns(self) -> tuple[str, ...]:
        """All columns that the layout looks at."""
        named = (self.text, self.id, self.url, self.date, self.title, *self.metadata.values())
        return tuple(dict.fromkeys(name for names in named for name in names))


def _columns_by_name(*names: str) -> dict[str, tuple[str, ...]]:
    return {name: (name,) for name in names}


PRESETS = {
    # HuggingFaceFW/fineweb, fineweb-edu, fineweb-2: the id is that of the WARC record.
    "fineweb": Layout(
        id=("id",),
        metadata=_columns_by_name("dump", "language", "language_script", "language_score", "file_path", "score"),
    ),
    # allenai/c4
    "c4": Layout(date=("timestamp",)),
    # EleutherAI/pile
    "pile": Layout(metadata={"set": ("meta.pile_set_name",)}),
    # allenai/dolma
    "dolma": Layout(
        id=("id",),
        url=("metadata.url", "url"),
        date=("created",),
        title=("metadata.title",),
        metadata=_columns_by_name("source"),
    ),
    # togethercomputer/RedPajama-Data-1T, and -V2
    "redpajama": Layout(
        text=("text", "raw_content"),
        url=("url", "meta.url"),
        date=("date_download", "meta.timestamp"),
        title=("title", "meta.title"),
        metadata={"language": ("language", "meta.language"), "set": ("red_pajama_subset", "meta.source")},
    ),
    # wikimedia/wikipedia, and wikiextractor's JSON
    "wikipedia": Layout(id=("id",)),
    # wikimedia/structured-wikipedia: Wikimedia Enterprise's dumps
    "wikipedia-structured": Layout(
        text=("sections",),
        id=("identifier",),
        date=("date_modified",),
        title=("name",),
        metadata={"language": ("in_language.identifier",), "description": ("description",)},
        structured=True,
    ),
    # bigcode/the-stack, bigcode/starcoderdata, codeparrot/github-code
    "code": Layout(
        text=("content", "code", "text"),
        metadata={
            "repository": ("repository_name", "repo_name", "max_stars_repo_name", "repo"),
            "path": ("path", "max_stars_repo_path", "file_path"),
            "licence": ("license", "licenses", "detected_licenses", "max_stars_repo_licenses"),
            "language": ("language", "lang", "programming_language"),
        },
        verbatim=True,
    ),
}


def source_layout(source: TextSource) -> Layout:
    """The layout of a source: its preset's, or `text`, `url`, `title` and `date`, with the columns that its own keys name in place."""
    preset = PRESETS[source.preset] if source.preset else Layout()
    named = {"text": source.text_key, "id": source.id_key, "url": source.url_key, "date": source.date_key}
    keys = {name: column for name, column in named.items() if column}
    more = source.metadata_keys or []
    columns: dict[str, Any] = {name: (column,) for name, column in keys.items()}
    return replace(
        preset,
        **columns,
        metadata={**preset.metadata, **_columns_by_name(*more)},
        structured=preset.structured and "text" not in keys,
        required=(*keys.values(), *more),
    )


class UnreadableValueError(ValueError):
    """A value that is there and cannot be read."""


def column_value(row: Any, column: str) -> Any:
    """What a row has in a column; None if it has none. A string on the way is read as JSON (RedPajama has such).

    Raises UnreadableValueError if that string is not JSON.
    """
    if isinstance(row, dict) and column in row:
        return row[column]
    for part in column.split("."):
        if isinstance(row, str) and row:
            try:
                row = json.loads(row, strict=False)
            except (ValueError, RecursionError) as error:
                raise UnreadableValueError(str(error)) from error
        row = row.get(part) if isinstance(row, dict) else None
    return row


def first_value(
    row: dict[str, Any],
    columns: Iterable[str],
    read: Callable[[Any], Any] = lambda cell: cell,
    lost: Collection[str] = (),
) -> tuple[Any, list[str]]:
    """(what `read` makes of the first column's value that a row has and that can be read, the columns before that cannot be).

    The value is None if a row has none. lost: columns that are known to be unreadable, and None in the row.
    """
    failed = []
    for column in columns:
        if is_lost(column, lost):
            failed.append(column)
            continue
        try:
            cell = column_value(row, column)
            if cell is not None:
                return read(cell), failed
        except UnreadableValueError:
            failed.append(column)
    return None, failed


def is_lost(column: str, lost: Collection[str]) -> bool:
    """Whether a column, or the nested one that it is in, is among `lost`."""
    return any(column == name or column.startswith(f"{name}.") for name in lost)


def text_of(row: dict[str, Any], how: Layout) -> str | None:
    """The text of a row; None if there is no string."""
    cell, _ = first_value(row, how.text)
    if how.structured and isinstance(cell, list | str):
        try:
            tree = json.loads(cell, strict=False) if isinstance(cell, str) else cell
        except (ValueError, RecursionError):
            return None
        return tidy("\n\n".join(_section_texts(tree)))
    if not isinstance(cell, str):
        return None
    return clean_verbatim(cell) if how.verbatim else tidy(cell)


def _section_texts(parts: Any, depth: int = 0) -> list[str]:
    """Headings, paragraphs and list items of an article's tree, in order."""
    out: list[str] = []
    for part in parts if isinstance(parts, list) and depth < 64 else ():
        if not isinstance(part, dict):
            continue
        kind, name, content = part.get("type"), part.get("name"), part.get("value")
        if kind == "section" and isinstance(name, str) and name not in ("", "Abstract"):
            out.append(name)
        if isinstance(content, str):
            out.append(f"- {content}" if kind == "list_item" else content)
        out += _section_texts(part.get("has_parts"), depth + 1)
    return out


def row_facts(row: dict[str, Any], how: Layout, lost: Collection[str] = ()) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What else a row says: `id`, `url`, `title` and `date` as strings, and `fields`, the metadata, where present; and the columns that
    have a value that cannot be read, sorted.

    lost: columns that the reader could not read.
    """
    columns = {"url": how.url, "title": how.title, "date": how.date}
    values = {name: first_value(row, columns[name], _as_string, lost) for name in columns}
    values["id"] = first_value(row, how.id, _as_identifier, lost)
    fields = {name: first_value(row, columns, _as_json, lost) for name, columns in how.metadata.items()}
    out: dict[str, Any] = {name: text for name, (text, _) in values.items() if text}
    if more := {name: content for name, (content, _) in fields.items() if content is not None}:
        out["fields"] = more
    failed = [*(column for _, columns in [*values.values(), *fields.values()] for column in columns)]
    # Within a nested column that is kept as metadata a part may be lost.
    failed += [name for name in lost if any(name.startswith(f"{column}.") for column in how.columns())]
    return out, tuple(sorted(set(failed)))


def _as_string(cell: Any) -> str:
    """A value as a string. Raises UnreadableValueError for one that is no text, date or whole number."""
    if isinstance(cell, datetime.date):
        return cell.isoformat()
    if isinstance(cell, bytes):
        cell = _decode_utf8(cell)
    if isinstance(cell, decimal.Decimal) and cell.is_finite() and cell == cell.to_integral_value():
        cell = int(cell)
    if isinstance(cell, str | int | uuid.UUID) and not isinstance(cell, bool):
        return tidy(str(cell))
    raise UnreadableValueError(type(cell).__name__)


def _as_identifier(cell: Any) -> str:
    """As `_as_string`, of an id: without what is no character two ids could be one."""
    if isinstance(cell, str) and LONE.search(cell):
        raise UnreadableValueError("lone surrogates")
    return _as_string(cell)


def _decode_utf8(raw: bytes) -> str:
    """Some writers mark no column of strings as such. Raises UnreadableValueError for what is no UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UnreadableValueError(str(error)) from error


def _as_json(cell: Any, depth: int = 0) -> Any:
    """A value as JSON has it, long ones and deep ones cut. Raises UnreadableValueError for one that JSON has not, or that is too deep."""
    if cell is None or isinstance(cell, bool | int):
        return cell
    if isinstance(cell, float):
        if not math.isfinite(cell):
            raise UnreadableValueError(str(cell))
        return cell
    if isinstance(cell, datetime.date):
        return cell.isoformat()
    if isinstance(cell, decimal.Decimal | uuid.UUID):
        return str(cell)
    if isinstance(cell, bytes):
        cell = _decode_utf8(cell)
    if isinstance(cell, list):
        if depth >= DEEPEST:
            raise UnreadableValueError(f"over {DEEPEST} lists within lists")
        return [_as_json(item, depth + 1) for item in cell[:100]]
    try:
        return tidy(cell if isinstance(cell, str) else json.dumps(cell, sort_keys=True, default=str))[:LONGEST]
    except RecursionError as error:
        raise UnreadableValueError("too deep") from error
