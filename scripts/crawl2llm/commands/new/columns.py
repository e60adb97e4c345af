"""Which columns rows have, and what follows from that: the layout of a known data set, or the column of the text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from crawl2llm.core.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Columns = dict[str, str]  # a column, or the path to one within another (`meta.url`) → its type in words
TEXT = "string"
TEXT_KEYS = ("text", "content", "raw_content", "body")
SHOWN = 40  # most columns that an error names
# Columns that tell a data set (its layout: stages/ingest/layouts.py), the first that fits. As their cards on the Hugging Face hub have
# them; of those in ONLY a row has no others, for they are columns of many data sets.
SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("wikipedia-structured", ("sections", "identifier", "name")),
    ("fineweb", ("text", "id", "dump", "file_path")),
    ("redpajama", ("text", "red_pajama_subset")),
    ("redpajama", ("raw_content", "date_download")),
    ("redpajama", ("raw_content", "doc_id", "quality_signals")),
    ("pile", ("text", "meta.pile_set_name")),
    ("dolma", ("text", "id", "source", "added")),
    ("c4", ("text", "timestamp", "url")),
    ("wikipedia", ("text", "id", "url", "title")),
    ("code", ("content", "max_stars_repo_path")),
    ("code", ("content", "repo_name", "path")),
    ("code", ("code", "repo_name", "path")),
)
ONLY = {"c4", "wikipedia"}
TREES = {"wikipedia-structured"}  # whose text is no string


def of_schema(schema: pa.Schema) -> Columns:
    """The columns of a Parquet file."""
    import pyarrow as pa

    def below(name: str, kind: pa.DataType) -> Iterable[tuple[str, str]]:
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        of = pa.types
        is_text = of.is_string(plain) or of.is_large_string(plain) or of.is_string_view(plain)
        yield name, TEXT if is_text else str(kind)[:40]
        for field in kind if pa.types.is_struct(kind) else ():
            yield from below(f"{name}.{field.name}", field.type)

    return {name: kind for field in schema for name, kind in below(field.name, field.type)}


def of_rows(rows: Iterable[Mapping[str, Any]]) -> Columns:
    """The columns of some rows of JSON Lines, in the order in which they come."""
    found: Columns = {}

    def add(name: str, value: Any) -> None:
        kind = TEXT if isinstance(value, str) else "null" if value is None else type(value).__name__
        if found.get(name, "null") == "null":
            found[name] = kind
        for key, held in value.items() if isinstance(value, dict) else ():
            add(f"{name}.{key}", held)

    for row in rows:
        for key, value in row.items():
            add(key, value)
    return found


def preset(columns: Columns) -> str:
    """The data set that has these columns, as `preset` names it; "" where none is known."""
    top = {name for name in columns if "." not in name}
    for name, signs in SIGNS:
        is_text = columns.get(signs[0]) == TEXT or name in TREES
        if is_text and columns.keys() >= set(signs) and (name not in ONLY or top == set(signs)):
            return name
    return ""


def keys(columns: Columns, wanted: str, where: str) -> dict[str, str]:
    """What the config has to say of rows with these columns: `preset`, `text_key`, or nothing where their text is under `text`.

    wanted: the column of the text, where a person named it. where: the file, for errors. Raises InputError, with the columns that are
    there, where none is the text.
    """
    if wanted:
        if columns.get(wanted) != TEXT:
            what = f"is {columns[wanted]}, not a string" if wanted in columns else "is none of its columns"
            raise InputError(f"{where}: --text-key {wanted} {what}; its columns are {listed(columns)}")
        return {"text_key": wanted}
    if known := preset(columns):
        return {"preset": known}
    found = next((key for key in TEXT_KEYS if columns.get(key) == TEXT), None)
    if found is None:
        raise InputError(
            f"{where}: no text under {', '.join(TEXT_KEYS)}; its columns are {listed(columns)}: name the one with the text by "
            "--text-key, which sets `text_key` of the source"
        )
    return {"text_key": found} if found != "text" else {}


def listed(columns: Columns) -> str:
    """The columns with their types, for a person."""
    names = [f"{name} ({kind})" for name, kind in columns.items()]
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def of_lines(start: bytes) -> Columns:
    """The columns of JSON Lines of which this is the beginning; none where its first line is longer, or no JSON."""
    rows = []
    for line in start.split(b"\n")[:20]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the last one is cut
        if isinstance(row, dict):
            rows.append(row)
    return of_rows(rows)
