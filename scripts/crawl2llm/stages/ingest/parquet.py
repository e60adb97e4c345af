"""Reads Parquet, row group by row group: every row is a document or is dropped with a reason.

A row group is read in pieces, so that memory does not grow with it. Damage costs what is left of its row group alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawl2llm.stages.ingest.files import File, FileHead
from crawl2llm.stages.ingest.layouts import row_facts, text_of
from crawl2llm.stages.ingest.pages import Pages
from crawl2llm.stages.ingest.text import Place, TextReader
from crawl2llm.stages.ingest.warc import Page, RejectedRecord

PIECE = 16 * 2**20  # bytes of text held at a time, by the row group's mean
TIMES = 40  # max_body_bytes that a page may take: with the default 800 MB, which leaves 200 to everything else
ROWS = 256  # most rows at a time
ROOM = 8 * PIECE  # most bytes of the pages that hold these rows, where the mean says little; a page may be larger
FOOTER = 2**25  # most bytes of a file's footer, of which Arrow makes tables that are larger
BUFFER = 2**20  # bytes of a column read at a time; without it Arrow reads the column of a whole row group
# Arrow raises all of them.
DAMAGE_ERRORS = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError, KeyError)
VALUE_ERRORS = (ValueError, OverflowError, KeyError)  # of a value that is none in Python


class ParquetReader(TextReader):
    """Parquet with a column of text; the columns are those of the source's layout (stages/ingest/layouts.py)."""

    def __call__(self, path: File, file: str = "") -> Iterator[Page | RejectedRecord]:
        """Every row of the file. file: its name below the source's root."""
        place = Place(self.source.name, file or path.name)
        try:
            with (
                closing(Pages(path.open("rb", 0), self.settings.max_body_bytes * TIMES, ROOM)) as stream,
                pq.ParquetFile(
                    checked_stream(stream),
                    buffer_size=BUFFER,
                    pre_buffer=False,
                    page_checksum_verification=True,
                    coerce_int96_timestamp_unit="us",  # in nanoseconds, Arrow's default, years after 2262 are others
                ) as opened,
            ):
                columns = self.present_columns(opened.schema_arrow)
                if twice := [
                    path
                    for path in columns
                    if not self.is_beside_text(path) and _is_repeated(path, opened.schema_arrow)
                ]:
                    raise ValueError(f"several columns are called {twice[0]}")
                if wrong := self.schema_problem(opened.schema_arrow):
                    rows = opened.metadata.num_rows
                    yield RejectedRecord(wrong[0], place.key, place.url, f"{wrong[1]}; its {rows:,} rows are not read")
                    return
                row, limit = 0, path.limit if isinstance(path, FileHead) else None
                for group in range(opened.num_row_groups):
                    if limit is not None and _group_end(opened.metadata.row_group(group)) > limit:
                        break
                    yield from self.pages_of_group(opened, stream, group, row, columns, place)
                    row += opened.metadata.row_group(group).num_rows
        except DAMAGE_ERRORS as error:
            yield RejectedRecord("broken_file", place.key, place.url, str(error)[:300])

    def present_columns(self, schema: pa.Schema) -> list[str]:
        """What `iter_batches` calls the columns of the layout that the file has; several may lie within one string of JSON."""
        return list(dict.fromkeys(path for name in self.layout.columns() if (path := _find_column(name, schema)[0])))

    def is_beside_text(self, path: str) -> bool:
        """Whether a column, by what `iter_batches` calls it, is beside the text: without it there still is a text."""
        return not any(name == path or name.startswith(f"{path}.") for name in self.layout.text)

    def schema_problem(self, schema: pa.Schema) -> tuple[str, str] | None:
        """(reason, detail) why nothing of a file with these columns can be read; None if it can."""
        text_columns = [name for name in self.layout.text if _find_column(name, schema)[0]]
        missing = [name for name in self.layout.required if not _find_column(name, schema)[0]]
        if missing or not text_columns:
            names = ", ".join(missing or self.layout.text)
            return "missing_column", f"no column {names}; the file has {', '.join(schema.names)[:200]}"
        kind = _find_column(text_columns[0], schema)[1]
        if not self.layout.structured and not _is_text(kind):
            return "wrong_type", f"the column {text_columns[0]} is {str(kind)[:100]}, not a string"
        return None

    def pages_of_group(
        self, opened: pq.ParquetFile, stream: Pages, group: int, start: int, columns: list[str], place: Place
    ) -> Iterator[Page | RejectedRecord]:
        """The rows of a row group, of which the first is row `start` of the file."""
        about = opened.metadata.row_group(group)
        mean = max(about.total_byte_size, 1) / max(about.num_rows, 1)
        size = int(min(max(PIECE / mean, 1), ROWS))
        row = start
        lost = {path for path in columns if self.is_beside_text(path) and _is_repeated(path, opened.schema_arrow)}
        columns_read, searched = [path for path in columns if path not in lost], False
        while True:
            stream.begin_group(about, size)
            at = start
            try:
                for batch in opened.iter_batches(size, row_groups=[group], columns=columns_read, use_threads=False):
                    done, at = max(row - at, 0), at + len(batch)  # from the beginning again, with fewer rows at a time
                    for body in _readable_rows(batch.slice(done), 2 * self.settings.max_body_bytes):
                        yield self.page_of_row(place, row, body, lost)
                        row += 1
                    stream.release_rows()
                if row != start + about.num_rows:
                    raise ValueError(f"{row - start:,} rows, and its header says {about.num_rows:,}")
            except DAMAGE_ERRORS as error:
                if stream.error and stream.error.smaller:
                    size = max(size // 16, 1)
                    continue
                why = str(stream.error or error)[:200]
                if not searched and (damaged := self.find_damaged(opened, stream, group, size, columns_read)):
                    # From here on without them: the text decides, and it is still there.
                    columns_read = [path for path in columns_read if path not in damaged]
                    lost, searched = lost.union(damaged), True
                    continue
                gone = start + about.num_rows - row
                last_row = start + about.num_rows - 1
                where = f"row group {group} at byte {_group_begin(about)}, rows {row:,} to {last_row:,}"
                key, url = f"{place.key}#{row}", f"{place.url}#{row}"
                yield RejectedRecord("broken_row_group", key, url, f"{where} ({gone:,}) are lost: {why}")
            return

    def find_damaged(
        self, opened: pq.ParquetFile, stream: Pages, group: int, size: int, columns: list[str]
    ) -> list[str]:
        """Which of the columns beside the text cannot be read to the end of a row group, each read by itself."""
        damaged = []
        for path in filter(self.is_beside_text, columns):
            stream.begin_group(opened.metadata.row_group(group), size)
            try:
                for _ in opened.iter_batches(size, row_groups=[group], columns=[path], use_threads=False):
                    stream.release_rows()
            except DAMAGE_ERRORS:
                damaged.append(path)
        return damaged

    def page_of_row(
        self, place: Place, row: int, body: tuple[dict[str, Any], dict[str, str | int]], lost_columns: Collection[str]
    ) -> Page | RejectedRecord:
        """A row as a Page or a RejectedRecord. body: as of `_readable_rows`. lost_columns: columns that are lost in every row."""
        values, lost = body
        text = text_of(values, self.layout)
        if text is None:
            for name, why in lost.items():
                if self.is_beside_text(name):
                    continue
                if isinstance(why, int):
                    return self.rejected_row("too_large", place, row, f"{why:,} bytes in its columns")
                return self.rejected_row("broken_record", place, row, why)
            return self.rejected_row("no_text", place, row, f"no string under {' or '.join(self.layout.text)}")
        if len(text) > self.settings.max_body_bytes or len(text.encode()) > self.settings.max_body_bytes:
            return self.rejected_row("too_large", place, row, f"over {self.settings.max_body_bytes} bytes")
        return self.page_of_text(place, row, text, *row_facts(values, self.layout, {*lost, *lost_columns}))


def _find_column(name: str, schema: pa.Schema) -> tuple[str, pa.DataType | None]:
    """(what `iter_batches` calls the column, its type) of a column or a path into a nested one; ("", None) if there is none.

    What lies within a string of JSON is known when it is read: the string's column, and the type null.
    """
    if name in schema.names:
        return name, schema.types[schema.names.index(name)]
    top, *parts = name.split(".")
    path, kind = top, schema.types[schema.names.index(top)] if top in schema.names else None
    for part in parts:
        if kind is not None and _is_text(kind):
            return path, pa.null()
        if kind is None or not pa.types.is_struct(kind) or (at := kind.get_field_index(part)) < 0:
            return "", None
        path, kind = f"{path}.{part}", kind.field(at).type
    return (path, kind) if kind is not None else ("", None)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind)


def _is_repeated(path: str, schema: pa.Schema) -> bool:
    """Whether several columns have this name, so that nobody can say which is meant."""
    return bool(schema.names.count(path.partition(".")[0]) > 1)


def _in_range(array: pa.Array) -> pa.Array:
    """Times in nanoseconds as microseconds, which are Python's: what is less than one is cut."""
    kind = array.type
    if not pa.types.is_timestamp(kind) or kind.unit != "ns":
        return array
    return array.cast(pa.timestamp("us", kind.tz), safe=False)


def _readable_rows(batch: pa.RecordBatch, limit: int) -> Iterator[tuple[dict[str, Any], dict[str, str | int]]]:
    """(columns, what is wrong with those that cannot be read: words, or their bytes where they are too many) of each row.

    A row of over `limit` bytes keeps its columns of up to half as many.
    """
    arrays = dict(zip(batch.schema.names, map(_in_range, batch.columns), strict=True))
    if batch.nbytes <= limit:
        try:
            yield from ((row, {}) for row in pa.RecordBatch.from_pydict(arrays).to_pylist())
            return
        except VALUE_ERRORS:
            pass
    for at in range(len(batch)):
        row, lost = dict[str, Any](), dict[str, str | int]()
        most = limit if batch.slice(at, 1).nbytes <= limit else limit // 2
        for name, array in arrays.items():
            row[name] = _read_value(array.slice(at, 1), name, most, lost)
        yield row, lost


def _read_value(array: pa.Array, name: str, limit: int, lost: dict[str, str | int]) -> Any:
    """The value of an array of one row; None if it cannot be read, and then `lost` has why: what Python says of no UTF-8, a year above
    9999 or an unknown time zone, or its bytes where they are over `limit` (as Python's strings they may take four times as many).

    Of a nested column, what can be read of it. name: of the column.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    array = _in_range(array)
    small = array.nbytes <= limit
    if small:
        try:
            return array.to_pylist()[0]
        except VALUE_ERRORS as error:
            why: str | int = f"{type(error).__name__}: {error}"[:300]
    else:
        why = array.nbytes
    if pa.types.is_struct(array.type) and array.is_valid()[0].as_py():
        return {
            field.name: _read_value(array.field(number), f"{name}.{field.name}", limit, lost)
            for number, field in enumerate(array.type)
        }
    lost[name] = why
    return None


def checked_stream(stream: Pages) -> Pages:
    """The stream, at its begin. Raises OSError if a file's footer, whose length is before its last four bytes, is too long."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - 8, 0))
    length = int.from_bytes(stream.read(4), "little")
    if FOOTER < length < size:
        raise OSError(f"its footer has {length:,} bytes, at most {FOOTER:,}")
    stream.seek(0)
    return stream


def _group_end(group: Any) -> int:
    """Where a row group ends, in bytes."""
    return _group_begin(group) + sum(group.column(number).total_compressed_size for number in range(group.num_columns))


def _group_begin(group: Any) -> int:
    """Where a row group begins, in bytes."""
    column = group.column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)
