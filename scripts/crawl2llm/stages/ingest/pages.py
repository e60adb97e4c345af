"""Watches the pages of a Parquet file as they are read, so that none is decompressed that would take too much memory.

A page's header says how large it is decompressed, before Arrow makes room for it; nothing in the file's footer does. Format:
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift (PageHeader), in Thrift's compact protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO

from crawl2llm.stages.ingest.files import StreamWrapper

HEADER = 1 << 24  # most bytes of a page's header: it may hold the smallest and the largest value
DICTIONARY = 2  # the type of a page


class PageError(OSError):
    """A page that is not read. smaller: whether the same would do with fewer rows at a time."""

    def __init__(self, message: str, smaller: bool = False) -> None:
        super().__init__(message)
        self.smaller = smaller


class TruncatedHeaderError(Exception):
    """A header that goes on behind the bytes that are there."""


@dataclass
class Chunk:
    """The column of a row group. at: of the next byte that will be read. following: of the next page's header. tail: its beginning."""

    end: int
    at: int
    following: int
    tail: bytes = b""


class Pages(StreamWrapper):
    """A stream of a Parquet file.

    most: bytes that a page may take: compressed, decompressed, and its values once more; those of a dictionary twice.

    room: decompressed bytes for the rows that are read at a time. What is over it raises PageError, and stays as `error`, since Arrow
    may wrap it.
    """

    def __init__(self, stream: BinaryIO, most: int, room: int) -> None:
        super().__init__(stream)
        self.most, self.room = most, room
        self.error: PageError | None = None
        self.chunks: list[Chunk] = []
        self.rows = self.held_bytes = 0

    def begin_group(self, group: Any, rows: int) -> None:
        """A row group (its metadata) is read from its beginning, so many rows at a time."""
        self.error, self.rows, self.held_bytes, self.chunks = None, rows, 0, []
        for column in map(group.column, range(group.num_columns)):
            start = column.data_page_offset
            if column.dictionary_page_offset is not None and 0 < column.dictionary_page_offset < start:
                start = column.dictionary_page_offset
            self.chunks.append(Chunk(start + column.total_compressed_size, start, start))

    def release_rows(self) -> None:
        """The rows that were read are done with."""
        self.held_bytes = 0

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer at the end. Raises PageError."""
        at = self.stream.tell()
        data = self.stream.read(size)
        for chunk in self.chunks:
            if chunk.at == at < chunk.end:
                try:
                    self._check_headers(chunk, data)
                except PageError as error:
                    self.error = error
                    raise
        return data

    def _check_headers(self, chunk: Chunk, data: bytes) -> None:
        begin, chunk.at = chunk.at - len(chunk.tail), chunk.at + len(data)
        data = chunk.tail + data if chunk.tail else data
        chunk.tail = b""
        while chunk.following < min(chunk.at, chunk.end):
            rest = memoryview(data)[chunk.following - begin :]
            try:
                size, kind, whole, packed = parse_header(rest)
            except TruncatedHeaderError:
                if len(rest) > HEADER:
                    raise PageError(f"the header of a page has over {HEADER:,} bytes") from None
                chunk.tail = bytes(rest)
                return
            self._check_page(kind, whole, packed)
            chunk.following += size + packed

    def _check_page(self, kind: int, whole: int, packed: int) -> None:
        if packed < 0 or whole < 0:
            raise PageError("a page of negative size")
        if packed + (3 if kind == DICTIONARY else 2) * whole > self.most:
            page = f"a page of {whole:,} bytes ({packed:,} compressed)"
            raise PageError(f"{page} takes over {self.most:,} bytes of memory; it is read with a larger max_body_bytes")
        # Each of the rows may be the longest value of the dictionary.
        self.held_bytes += 0 if kind == DICTIONARY else whole
        if self.rows > 1 and (self.held_bytes > self.room or (kind == DICTIONARY and whole * self.rows > self.room)):
            raise PageError(f"{self.rows} rows take over {self.room:,} bytes", smaller=True)


def parse_header(data: memoryview) -> tuple[int, int, int, int]:
    """(bytes of the header, type, bytes of the page decompressed, and compressed). Raises TruncatedHeaderError, PageError."""
    numbers = {1: -1, 2: -1, 3: -1}
    at = _struct_end(data, 0, numbers)
    return at, numbers[1], numbers[2], numbers[3]


def _struct_end(data: memoryview, at: int, numbers: dict[int, int], depth: int = 0) -> int:
    """Where a struct ends. numbers: its whole numbers that are wanted, by the fields' ids."""
    field = 0
    while True:
        kind, at = _read_byte(data, at)
        if kind == 0:
            return at
        step, kind = kind >> 4, kind & 15
        field += step
        if not step:
            number, at = _read_varint(data, at)
            field = number >> 1 ^ -(number & 1)
        if kind in (4, 5, 6):
            number, at = _read_varint(data, at)
            if not depth and field in numbers:
                numbers[field] = number >> 1 ^ -(number & 1)
        else:
            at = _field_end(data, at, kind, depth)


def _field_end(data: memoryview, at: int, kind: int, depth: int) -> int:
    if kind in (1, 2):  # a boolean is its type
        return at
    if kind == 3:
        return at + 1
    if kind == 7:
        return at + 8
    if kind == 8:
        length, at = _read_varint(data, at)
        if at + length > len(data):
            raise TruncatedHeaderError
        return at + length
    if kind == 12 and depth < 8:
        return _struct_end(data, at, {}, depth + 1)
    raise PageError("the header of a page is damaged")


def _read_byte(data: memoryview, at: int) -> tuple[int, int]:
    if at >= len(data):
        raise TruncatedHeaderError
    return data[at], at + 1


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte, at = _read_byte(data, at)
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise PageError("the header of a page is damaged")
