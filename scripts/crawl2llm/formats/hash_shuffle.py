"""Rows of hashes that shards deal out to parts, and what a part says of these hashes to each shard: no task holds more than a piece.

A step by shard writes its rows with `Dealer`, sorted by hash. A part is a range of hashes: a step by part reads its range from the files of
all shards, a piece at a time (`pieces_of_part`), with all rows of a hash in one piece. What it finds it writes with `Answers`, and a step
by shard reads what all parts say to it (`read_answers`).

Rows of one hash are many where a line is on every page. So a shard's rows of one hash are made one before they are written, a block at a
time: what a part reads of a hash grows with the shards, not with the documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl2llm.core.manifest import ManifestError
from crawl2llm.formats.document_numbers import column, group_starts, manifests_by_number
from crawl2llm.formats.documents import GROUP, Writer, open_parquet, parquet_file
from crawl2llm.formats.external_partition import Spill, count_parts, part_by_hash

BLOCK = 1 << 21  # rows held by a shard's task until they are written, about 160 bytes each while they are sorted
GROUP_ROWS = 1 << 14  # rows of a row group in a shard's file: of BLOCK rows, a 256th part is in one or two
HELD_ROWS = 1 << 21  # rows of a part that are sorted at a time
SHARDS = 16  # shards whose answers are sorted at a time

Rows = npt.NDArray[np.void]
Hashes = npt.NDArray[np.uint64]

# What a part says to a shard of a hash that is in it. document, at: the only place where it stays, or -1 where that is not in this shard.
ANSWER = np.dtype([("shard", "i4"), ("hash", "u8"), ("document", "i8"), ("at", "i8")])


def row_schema(kind: np.dtype) -> pa.Schema:
    """The columns of a file of rows of this type."""
    return pa.schema([(name, pa.from_numpy_dtype(kind[name])) for name in kind.names or ()])


def table_of(rows: Rows) -> pa.Table:
    """Rows as a table."""
    return pa.table({name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()})


def rows_between(path: Path, kind: np.dtype, key: str, first: int, last: int) -> Iterator[Rows]:
    """The rows with first <= `key` <= last of a file whose row groups are each sorted by `key`, those of a row group at a time.

    Reads the row groups that have some. Raises ManifestError for a file of other columns.
    """
    at = (kind.names or ()).index(key)
    with open_parquet(path) as file:
        if file.schema_arrow.names != row_schema(kind).names:
            raise ManifestError(f"{path} has the columns {file.schema_arrow.names}, not {row_schema(kind).names}")
        for group in range(file.num_row_groups):
            statistics = file.metadata.row_group(group).column(at).statistics
            if statistics.min <= last and statistics.max >= first:
                group_table = file.read_row_group(group)
                values = column(group_table, key)
                start = int(np.searchsorted(values, values.dtype.type(first), "left"))
                end = int(np.searchsorted(values, values.dtype.type(last), "right"))
                out = np.empty(end - start, kind)
                for name in kind.names or ():
                    out[name] = column(group_table, name)[start:end]
                yield out


def hash_bounds(part: int, parts: int) -> tuple[int, int]:
    """(first, last) of the hashes of a part: those that `part_by_hash` puts there."""
    first, end = (-(-(number << 32) // parts) << 32 for number in (part, part + 1))
    return first, end - 1


class Dealer:
    """Writes rows to a shard's file, a block after the other, each sorted by hash. Use as a context manager.

    merge: rows in any order → a row for each hash (or what it tells apart), sorted by hash. rows: written so far.
    """

    def __init__(self, path: Path, kind: np.dtype, merge: Callable[[Rows], Rows]) -> None:
        self.writer = Writer(path, row_schema(kind), GROUP_ROWS, hashes=["hash"])
        self.merge = merge
        self.waiting: list[Rows] = []
        self.held_rows = self.rows = 0

    def __enter__(self) -> Dealer:
        self.writer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                self._write_block()
        except BaseException as error:
            self.writer.__exit__(type(error))
            raise
        self.writer.__exit__(kind)

    def add(self, rows: Rows) -> None:
        """Add rows of the type."""
        if len(rows):
            self.waiting.append(rows)
            self.held_rows += len(rows)
        if self.held_rows >= BLOCK:
            self._write_block()

    def _write_block(self) -> None:
        if self.held_rows:
            rows = self.merge(np.concatenate(self.waiting))
            self.writer.add_table(table_of(rows))
            self.rows += len(rows)
            self.waiting, self.held_rows = [], 0


def rows_of_part(files: Sequence[Path], part: int, parts: int, kind: np.dtype) -> Iterator[tuple[int, Rows]]:
    """(a shard's number, some of its rows of the part), shards ascending. files: manifests of the step that dealt them."""
    for number, path in manifests_by_number(files):
        for rows in rows_between(parquet_file(path), kind, "hash", *hash_bounds(part, parts)):
            yield number, rows


def pieces_of_part(
    files: Sequence[Path], part: int, parts: int, kind: np.dtype, folder: Path, key: str = "hash"
) -> Iterator[tuple[npt.NDArray[np.int64], Rows]]:
    """(shard of each row, rows) of a part, in pieces of about HELD_ROWS: all rows of a value of `key` are in one.

    folder: empty or not there yet; for what does not fit into memory.
    """
    both = np.dtype([("shard", "i8"), ("row", kind)])
    total = 0
    for path in files:
        with open_parquet(parquet_file(path)) as file:
            total += file.metadata.num_rows
    spill = Spill(folder, count_parts(-(-total // parts), HELD_ROWS), both)
    for number, rows in rows_of_part(files, part, parts, kind):
        out = np.empty(len(rows), both)
        out["shard"], out["row"] = number, rows
        # The part took the hash's upper bits.
        spill.add(part_by_hash(rows[key] << np.uint64(32), spill.parts), out)
    for piece in range(spill.parts):
        piece_rows = spill.part(piece)
        yield piece_rows["shard"], piece_rows["row"]


class Answers:
    """Collects what a part says to all shards, and writes it by shard and hash.

    folder: empty or not there yet. shards: their manifests.
    """

    def __init__(self, folder: Path, shards: Sequence[Path]) -> None:
        self.spill = Spill(folder, 1 + manifests_by_number(shards)[-1][0] // SHARDS, ANSWER)
        self.rows = 0

    def add(
        self,
        shard: npt.NDArray[np.int64],
        hashes: Hashes,
        document: npt.NDArray[np.int64] | int = -1,
        at: npt.NDArray[np.int64] | int = -1,
    ) -> None:
        """Say to each shard that a hash is found, and where it stays; (rows,) each."""
        out = np.empty(len(shard), ANSWER)
        out["shard"], out["hash"], out["document"], out["at"] = shard, hashes, document, at
        self.spill.add(shard // SHARDS, out)
        self.rows += len(out)

    def write(self, path: Path) -> None:
        """Write them to a file."""
        with Writer(path, row_schema(ANSWER), GROUP, hashes=["hash"]) as writer:
            for block in range(self.spill.parts):
                writer.add_table(table_of(np.sort(self.spill.part(block), order=["shard", "hash", "document", "at"])))


def read_answers(files: Sequence[Path], shard: int) -> Rows:
    """What all parts say to a shard, a row for each hash, sorted by it: of two of one hash that which names a place.

    files: manifests of the step that says it.
    """
    parts = [rows for path in files for rows in rows_between(parquet_file(path), ANSWER, "shard", shard, shard)]
    rows = np.concatenate([np.zeros(0, ANSWER), *parts])
    rows = rows[np.lexsort((-rows["document"], rows["hash"]))]
    return rows[group_starts(rows["hash"])]


class HashTable:
    """Which hashes are among those that the parts name; most are not, and a bitmap says so at once."""

    BITS = 27  # at most: 128 MB

    def __init__(self, rows: Rows) -> None:
        """rows: from `read_answers`."""
        self.rows = rows
        self.hashes: Hashes = np.ascontiguousarray(rows["hash"])
        bits = min(self.BITS, max(10, (16 * len(rows)).bit_length()))
        self.shift = np.uint64(64 - bits)
        self.bitmap = np.zeros(1 << bits, bool)
        self.bitmap[self.hashes >> self.shift] = True

    def find(self, hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(which of these hashes are there, and at which row)."""
        maybe = np.flatnonzero(self.bitmap[hashes >> self.shift])
        if not len(maybe):
            return maybe, maybe
        wanted = hashes[maybe]
        at = np.minimum(np.searchsorted(self.hashes, wanted), len(self.hashes) - 1)
        right = self.hashes[at] == wanted
        return maybe[right], at[right]
