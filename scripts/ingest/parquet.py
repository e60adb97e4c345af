"""Reads Parquet, row group by row group: every row is a document or is dropped with a reason.

A row group is read in pieces, so that memory does not grow with it. Damage costs what is left of its row group alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scripts.ingest.files import File, First
from scripts.ingest.layouts import facts, layout, text_of
from scripts.ingest.pages import Pages
from scripts.ingest.text import Place, TextReader
from scripts.ingest.warc import Page, Rejected

PIECE = 16 * 2**20  # bytes of text held at a time, by the row group's mean
TIMES = 40  # max_body_bytes that a page may take: with the default 800 MB, which leaves 200 to everything else
ROWS = 256  # most rows at a time
ROOM = 8 * PIECE  # most bytes of the pages that hold these rows, where the mean says little; a page may be larger
FOOTER = 2**25  # most bytes of a file's footer, of which Arrow makes tables that are larger
BUFFER = 2**20  # bytes of a column read at a time; without it Arrow reads the column of a whole row group
BROKEN = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError, KeyError)  # Arrow raises all of them


class ParquetReader(TextReader):
    """Parquet with a column of text; the columns are those of the source's layout (scripts/ingest/layouts.py)."""

    def __init__(self, source: dict[str, Any], settings: dict[str, Any]) -> None:
        super().__init__(source, settings)
        self.layout = layout(source)

    def __call__(self, path: File, file: str = "") -> Iterator[Page | Rejected]:
        """Every row of the file. file: its name below the source's root."""
        place = Place(self.source["name"], file or path.name)
        try:
            with (
                closing(Pages(path.open("rb", 0), self.settings["max_body_bytes"] * TIMES, ROOM)) as stream,
                pq.ParquetFile(
                    checked(stream), buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True
                ) as opened,
            ):
                names = [_find(name, opened.schema_arrow)[0] for name in self.layout.columns()]
                columns = list(dict.fromkeys(filter(None, names)))
                if wrong := self.wrong(opened.schema_arrow):
                    rows = opened.metadata.num_rows
                    yield Rejected(wrong[0], place.key, place.url, f"{wrong[1]}; its {rows:,} rows are not read")
                    return
                row, limit = 0, path.limit if isinstance(path, First) else None
                for group in range(opened.num_row_groups):
                    if limit is not None and _end(opened.metadata.row_group(group)) > limit:
                        break
                    yield from self.group(opened, stream, group, row, columns, place)
                    row += opened.metadata.row_group(group).num_rows
        except BROKEN as error:
            yield Rejected("broken_file", place.key, place.url, str(error)[:300])

    def wrong(self, schema: pa.Schema) -> tuple[str, str] | None:
        """(reason, detail) why nothing of a file with these columns can be read; None where it can."""
        there = [name for name in self.layout.text if _find(name, schema)[0]]
        missing = [name for name in self.layout.required if not _find(name, schema)[0]]
        if missing or not there:
            names = ", ".join(missing or self.layout.text)
            return "missing_column", f"no column {names}; the file has {', '.join(schema.names)[:200]}"
        kind = _find(there[0], schema)[1]
        if not self.layout.structured and not _is_text(kind):
            return "wrong_type", f"the column {there[0]} is {str(kind)[:100]}, not a string"
        return None

    def group(
        self, opened: pq.ParquetFile, stream: Pages, group: int, start: int, columns: list[str], place: Place
    ) -> Iterator[Page | Rejected]:
        """The rows of a row group, of which the first is row `start` of the file."""
        about = opened.metadata.row_group(group)
        mean = max(about.total_byte_size, 1) / max(about.num_rows, 1)
        size = int(min(max(PIECE / mean, 1), ROWS))
        row = start
        while True:
            stream.begin(about, size)
            at = start
            try:
                for batch in opened.iter_batches(size, row_groups=[group], columns=columns, use_threads=False):
                    done, at = max(row - at, 0), at + len(batch)  # from the beginning again, with fewer rows at a time
                    for body in _rows(batch.slice(done), 2 * self.settings["max_body_bytes"]):
                        yield self.row(place, row, body)
                        row += 1
                    stream.seen()
                if row != start + about.num_rows:
                    raise ValueError(f"{row - start:,} rows, and its header says {about.num_rows:,}")
            except BROKEN as error:
                if stream.error and stream.error.smaller:
                    size = max(size // 16, 1)
                    continue
                lost = start + about.num_rows - row
                where = f"row group {group} at byte {_offset(about)}, rows {row:,} to {start + about.num_rows - 1:,}"
                key, url = f"{place.key}#{row}", f"{place.url}#{row}"
                why = str(stream.error or error)[:200]
                yield Rejected("broken_row_group", key, url, f"{where} ({lost:,}) are lost: {why}")
            return

    def row(self, place: Place, row: int, body: dict[str, Any] | str | int) -> Page | Rejected:
        """One row as a Page or a Rejected. body: its columns, or what is wrong with it, or its bytes where they are too many."""
        if isinstance(body, int):
            return self.rejected("too_large", place, row, f"{body:,} bytes in its columns")
        if isinstance(body, str):
            return self.rejected("broken_record", place, row, body)
        text = text_of(body, self.layout)
        if text is None:
            return self.rejected("no_text", place, row, f"no string under {' or '.join(self.layout.text)}")
        if len(text) > self.settings["max_body_bytes"] or len(text.encode()) > self.settings["max_body_bytes"]:
            return self.rejected("too_large", place, row, f"over {self.settings['max_body_bytes']} bytes")
        return self.page(place, row, text, facts(body, self.layout))


def _find(name: str, schema: pa.Schema) -> tuple[str, pa.DataType | None]:
    """(what `iter_batches` calls the column, its type) of a column or a path into a nested one; ("", None) where there is none.

    What lies within a string of JSON is known when it is read: the string's column, and the type null.
    """
    if name in schema.names:
        return name, schema.field(name).type
    top, *parts = name.split(".")
    path, found = top, schema.field(top).type if top in schema.names else None
    for part in parts:
        if found is not None and _is_text(found):
            return path, pa.null()
        if found is None or not pa.types.is_struct(found) or (at := found.get_field_index(part)) < 0:
            return "", None
        path, found = f"{path}.{part}", found.field(at).type
    return (path, found) if found is not None else ("", None)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    of = pa.types
    return of.is_string(kind) or of.is_large_string(kind) or of.is_string_view(kind) or of.is_null(kind)


def _rows(batch: pa.RecordBatch, limit: int) -> Iterator[dict[str, Any] | str | int]:
    """The rows of a batch; what is wrong with a row that has no value in Python: no UTF-8, a year above 9999, an unknown time zone.

    Of a row of over `limit` bytes its bytes: as Python's strings it may take four times as many.
    """
    if batch.nbytes <= limit:
        try:
            yield from batch.to_pylist()
            return
        except (ValueError, OverflowError, KeyError):
            pass
    for at in range(len(batch)):
        row = batch.slice(at, 1)
        try:
            yield row.to_pylist()[0] if row.nbytes <= limit else row.nbytes
        except (ValueError, OverflowError, KeyError) as error:
            yield f"{type(error).__name__}: {error}"[:300]


def checked(stream: Pages) -> Pages:
    """The stream, at its begin. Raises OSError where a file's footer, whose length is before its last four bytes, is too long."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - 8, 0))
    length = int.from_bytes(stream.read(4), "little")
    if FOOTER < length < size:
        raise OSError(f"its footer has {length:,} bytes, at most {FOOTER:,}")
    stream.seek(0)
    return stream


def _end(group: Any) -> int:
    """Where a row group ends, in bytes."""
    return _offset(group) + sum(group.column(number).total_compressed_size for number in range(group.num_columns))


def _offset(group: Any) -> int:
    """Where a row group begins, in bytes."""
    column = group.column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)
