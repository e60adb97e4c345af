"""Which columns rows have, and what follows from that: the layout of a known data set, or the column of the text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from crawl2llm.core.errors import InputError
from crawl2llm.core.phrases import and_more

if TYPE_CHECKING:
    import pyarrow as pa

Columns = dict[str, str]  # a column, or the path to one within another (`meta.url`) → its type in words
TEXT = "string"
TEXT_KEYS = ("text", "content", "raw_content", "body")
MOST_COLUMNS = 40  # most columns that an error names
# Columns that tell a data set (its layout: stages/ingest/layouts.py), the first that fits. As their cards on the Hugging Face hub have
# them; of those in EXACT_PRESETS a row has no others, for they are columns of many data sets.
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
EXACT_PRESETS = {"c4", "wikipedia"}
TREE_PRESETS = {"wikipedia-structured"}  # whose text is no string


def of_schema(schema: pa.Schema) -> Columns:
    """The columns of a Parquet file."""
    import pyarrow as pa

    def nested_columns(name: str, kind: pa.DataType) -> Iterable[tuple[str, str]]:
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        types = pa.types
        is_text = types.is_string(plain) or types.is_large_string(plain) or types.is_string_view(plain)
        yield name, TEXT if is_text else str(kind)[:40]
        for field in kind if pa.types.is_struct(kind) else ():
            yield from nested_columns(f"{name}.{field.name}", field.type)

    return {name: kind for field in schema for name, kind in nested_columns(field.name, field.type)}


def of_rows(rows: Iterable[Mapping[str, Any]]) -> Columns:
    """The columns of some rows of JSON Lines, in the order in which they come."""
    columns: Columns = {}

    def add_column(name: str, value: Any) -> None:
        kind = {str: TEXT, type(None): "null"}.get(type(value), type(value).__name__)
        if columns.get(name, "null") == "null":
            columns[name] = kind
        for key, inner in value.items() if isinstance(value, dict) else ():
            add_column(f"{name}.{key}", inner)

    for row in rows:
        for key, value in row.items():
            add_column(key, value)
    return columns


def preset_of(columns: Columns) -> str:
    """The data set that has these columns, as `preset` names it; "" where none is known."""
    top = {name for name in columns if "." not in name}
    for name, signs in SIGNS:
        is_text = columns.get(signs[0]) == TEXT or name in TREE_PRESETS
        if is_text and columns.keys() >= set(signs) and (name not in EXACT_PRESETS or top == set(signs)):
            return name
    return ""


def source_keys(columns: Columns, text_key: str, where: str) -> dict[str, str]:
    """What the config has to say of rows with these columns: `preset`, `text_key`, or nothing if their text is under `text`.

    text_key: the column of the text, where a person named it. where: the file, for errors. Raises InputError, with the columns that are
    there, if none is the text.
    """
    if text_key:
        if columns.get(text_key) != TEXT:
            problem = f"is {columns[text_key]}, not a string" if text_key in columns else "is none of its columns"
            raise InputError(f"{where}: --text-key {text_key} {problem}; its columns are {columns_text(columns)}")
        return {"text_key": text_key}
    if preset := preset_of(columns):
        return {"preset": preset}
    text_column = next((key for key in TEXT_KEYS if columns.get(key) == TEXT), None)
    if text_column is None:
        raise InputError(
            f"{where}: no text under {', '.join(TEXT_KEYS)}; its columns are {columns_text(columns)}: name the one with the text by "
            "--text-key, which sets `text_key` of the source"
        )
    return {"text_key": text_column} if text_column != "text" else {}


def columns_text(columns: Columns) -> str:
    """The columns with their types, for a person."""
    return and_more((f"{name} ({kind})" for name, kind in columns.items()), MOST_COLUMNS)


def of_lines(start: bytes) -> Columns:
    """The columns of JSON Lines of which this is the beginning; none if its first line is longer, or no JSON."""
    rows = []
    for line in start.split(b"\n")[:20]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the last one is cut
        if isinstance(row, dict):
            rows.append(row)
    return of_rows(rows)
