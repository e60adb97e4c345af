"""Documents as numbers, in tables over all shards: who is kept before whom, and how one part of a file is read.

There a document is `shard << 32 | row` (int64): the number in its shard's name, and its row in the shard's signals, which are in the
documents' order. Ids are read if an order or a verdict needs them.

Of two duplicates the one of higher priority is kept: one of an earlier corpus before all others, curated before not curated, then
more words, then the smaller id. That order depends on the documents alone, never on shards or workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, ManifestError
from crawl2llm.formats.documents import batches, open_parquet, parquet_file, shard_of

WORDS = (1 << 40) - 1  # more words than a document has
PAIRS = 1 << 20  # pairs read at a time
ROW_BITS = 32  # of a document's number; the shard is above them
BLOCK = 1 << 26  # shingles held at a time, 8 bytes each
EARLIER = 1 << 17  # the number of the first shard of an earlier corpus; those of this run have five digits
ZERO, KEEP, DENSE = "zero", "keep", "dense"  # dedup.signature.numbers: see `shingles.normalise`
HELD_DOCUMENTS = 1 << 22  # sorted at a time, about 150 bytes each

DUPLICATE = pa.schema([("document", pa.int64()), ("duplicate_of", pa.int64())])  # sorted by document

PAIR = pa.schema(
    [
        (
            "part",
            pa.int32(),
        ),  # which task of dedup.verify measures it: `part_of` the lower document; the file is sorted by it
        ("low", pa.int64()),  # the document that goes if the pair is a duplicate
        ("high", pa.int64()),  # the document of higher priority
    ]
)

# The documents of pairs, each with the parts that need its shingles; sorted.
WANTED_DOCUMENT = pa.schema([("document", pa.int64()), ("part", pa.int32())])

# The shingle sets of the documents of pairs: a row for each part that needs one. A row group is of one part.
SETS = pa.schema(
    [
        ("part", pa.int32()),
        ("document", pa.int64()),
        ("shingles", pa.list_(pa.field("element", pa.uint64(), nullable=False))),  # sorted distinct xxh3-64
    ]
)

VERIFIED_PAIR = pa.schema(
    [
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("similarity", pa.float64()),  # Jaccard similarity of the two shingle sets
    ]
)

# A document and a hash of it, with what decides its place among others of the same hash.
HASHED_DOCUMENT = np.dtype(
    [
        ("hash", "u8"),
        ("priority", "i8"),
        ("id", "u8"),  # the id's first 8 bytes, as a big-endian number,
        ("rest", "u8"),  # and the other 8
        ("document", "i8"),
    ]
)

Shingles = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Item = TypeVar("Item")


def manifests_by_number(manifests: Sequence[Path]) -> list[tuple[int, Path]]:
    """(the number in the shard's name, its manifest), ascending. Raises InputError if two shards have one number."""
    pairs = sorted((int(shard_of(path)), path) for path in manifests)
    if len({number for number, _ in pairs}) < len(pairs):
        raise InputError(f"two of the {len(pairs)} manifests of shards, such as {manifests[0]}, have the same number")
    return pairs


@dataclass(frozen=True)
class Shard:
    """A shard of the signals: its number, its file, and how many documents it has."""

    number: int
    path: Path
    documents: int


def read_shards(signals: Sequence[Path]) -> list[Shard]:
    """The shards of these manifests of dedup.signature, ascending. Raises InputError if two have one number."""
    return [
        Shard(number, parquet_file(path), Manifest.read(path).summary_part("documents"))
        for number, path in manifests_by_number(signals)
    ]


class Places:
    """The place of every document among those of all these shards, from 0. shards: ascending."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        sizes = np.zeros(shards[-1].number + 1, np.int64)
        sizes[[shard.number for shard in shards]] = [shard.documents for shard in shards]
        self.start: Numbers = np.concatenate(([0], np.cumsum(sizes)))  # by shard: of its first document; then the end
        self.number = int(self.start[-1])  # of documents

    def places_of(self, documents: Numbers) -> Numbers:
        """The places of documents; -1 for one that the shards do not have."""
        shard, row = shards_and_rows(documents)
        shard = np.minimum(shard, len(self.start) - 1)  # the end has no documents
        size = np.diff(self.start, append=self.start[-1])
        return np.where(row < size[shard], self.start[shard] + row, -1)

    def documents(self, places: Numbers) -> Numbers:
        """The documents at these places."""
        shard = np.searchsorted(self.start, places, side="right") - 1
        return (shard << ROW_BITS) + places - self.start[shard]


def shards_and_rows(documents: Numbers) -> tuple[Numbers, Numbers]:
    """(shard, row) of documents."""
    return documents >> ROW_BITS, documents & ((1 << ROW_BITS) - 1)


def first_document(shard: int) -> int:
    """The number of a shard's first document."""
    return shard << ROW_BITS


def part_of(documents: Numbers, parts: int) -> Numbers:
    """Which of the parts measures the pairs of these lower documents."""
    return (documents >> ROW_BITS) % parts


def document_priority(curated: npt.NDArray[np.bool_], words: Numbers) -> Numbers:
    """A number that is smaller for the document to keep; ties go to the smaller id."""
    return np.where(curated, 0, 1 << 40) + (WORDS - words)


def uint64_halves(values: pa.ChunkedArray, kind: str = ">u8") -> npt.NDArray[np.uint64]:
    """The two halves of every value of a binary(16) column without nulls, (rows, 2); big-endian ones sort as the values do."""
    parts = [np.zeros((0, 2), np.uint64)]
    for chunk in values.chunks:
        start = chunk.offset * 2
        halves = np.frombuffer(chunk.buffers()[1], kind)[start : start + 2 * len(chunk)]
        parts.append(halves.reshape(-1, 2).astype(np.uint64))
    return np.concatenate(parts)


def hashed_rows(table: pa.Table, documents: Numbers, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.void]:
    """Rows of HASHED_DOCUMENT. table: `id, words, curated` of these documents, a row each."""
    out = np.empty(len(documents), HASHED_DOCUMENT)
    out["hash"], out["document"] = hashes, documents
    out["priority"] = document_priority(column(table, "curated"), column(table, "words"))
    out["priority"] -= np.where(documents >= first_document(EARLIER), 1 << 42, 0)  # before all documents of this run
    ids = uint64_halves(table["id"])
    out["id"], out["rest"] = ids[:, 0], ids[:, 1]
    return out


def priority_order(rows: npt.NDArray[np.void], *groups: npt.NDArray) -> npt.NDArray[np.intp]:
    """The order of rows of HASHED_DOCUMENT by `groups`, the last first, and within a group by priority and id."""
    return np.lexsort((rows["rest"], rows["id"], rows["priority"], *groups))


def group_starts(*columns: npt.NDArray) -> npt.NDArray[np.bool_]:
    """Which rows differ from the row before in one of these columns, (rows,) each; the first does."""
    first = np.zeros(len(columns[0]), bool)
    first[:1] = True
    for values in columns:
        first[1:] |= values[1:] != values[:-1]
    return first


def opening_rows(first: npt.NDArray[np.bool_]) -> Numbers:
    """For each row the row that opens its group. first: which rows open one."""
    return np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))


def batch_by_size(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """The items in lists, each of which ends where the sum of their sizes reaches `most`."""
    batch: list[Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= most:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def shingle_lists(sets: Sequence[Shingles]) -> pa.ListArray:
    """Shingle sets, at least one, as a column `shingles` of SETS."""
    ends = np.cumsum([0, *map(len, sets)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.concatenate(sets)), type=SETS.field("shingles").type)


def read_columns(path: Path, columns: list[str]) -> pa.Table:
    """Columns of a whole Parquet file (one shard's). Raises ManifestError if it is damaged."""
    with open_parquet(path) as file:
        return file.read(columns)


def exempt_rows(path: Path, shard: int, skipped_by: Sequence[str]) -> Numbers:
    """The rows of a shard's signals that take no part: of sources that skip deduplication. None of an earlier corpus."""
    if not skipped_by or shard >= EARLIER:
        return np.zeros(0, np.int64)
    sources = read_columns(path, ["source"])["source"]
    return np.flatnonzero(pc.is_in(sources, value_set=pa.array(skipped_by, pa.string())).to_numpy())


def similar_pairs(files: Iterable[Path], threshold: float) -> Iterator[pa.RecordBatch]:
    """The pairs (VERIFIED_PAIR) whose similarity is `threshold` or more. files: of dedup.verify."""
    for path in files:
        for batch in batches(path, VERIFIED_PAIR.names, PAIRS):
            yield batch.filter(pc.greater_equal(batch["similarity"], threshold))


def binary_ids(ids: Iterable[str]) -> pa.Array:
    """Ids in hex as those of signals."""
    return pa.array([bytes.fromhex(name) for name in ids], pa.binary(16))


def table_between(path: Path, key: str, first: int, last: int, schema: pa.Schema) -> pa.Table:
    """The rows with first <= `key` < last of a file of this schema that is sorted by `key`; reads their row groups only."""
    at = schema.get_field_index(key)
    tables = [schema.empty_table()]
    with open_parquet(path) as file:
        if file.schema_arrow.names != schema.names:
            raise ManifestError(f"{path} has the columns {file.schema_arrow.names}, not {schema.names}")
        for group in range(file.num_row_groups):
            statistics = file.metadata.row_group(group).column(at).statistics
            if statistics.min < last and statistics.max >= first:
                table = file.read_row_group(group)
                start, end = np.searchsorted(column(table, key), [first, last]).tolist()
                tables.append(table.slice(start, end - start))
    return pa.concat_tables(tables)


def tables_by_shard(path: Path, shards: Sequence[int], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of each shard of a file that is sorted by `document`, one row group of the file in memory at a time.

    shards: ascending numbers of all shards. Raises InputError for a document of no shard among them.
    """
    pending = schema.empty_table()
    with open_parquet(path) as file:
        groups = iter(range(file.num_row_groups))
        for shard in shards:
            while not len(pending) or column(pending, "document")[-1] < first_document(shard + 1):
                if (group := next(groups, None)) is None:
                    break
                pending = pa.concat_tables([pending, file.read_row_group(group)])
            start, end = np.searchsorted(
                column(pending, "document"), [first_document(shard), first_document(shard + 1)]
            ).tolist()
            if start:
                raise InputError(f"{path} has documents before shard {shard} of shards that are not there")
            yield pending.slice(0, end)
            pending = pending.slice(end)
        if len(pending) or next(groups, None) is not None:
            raise InputError(f"{path} has documents of shards that are not there; the newest that is: {shards[-1:]}")


def column(table: pa.Table, name: str) -> npt.NDArray:
    """A column without nulls as a NumPy array."""
    return table[name].to_numpy()


def occur_in(values: npt.NDArray, ordered: npt.NDArray) -> npt.NDArray[np.bool_]:
    """Which values occur in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values


def repeated_values(values: npt.NDArray) -> npt.NDArray:
    """The values that occur twice or more, sorted and distinct. Sorts `values` in place."""
    values.sort()
    twice = values[1:][values[1:] == values[:-1]]
    return twice[group_starts(twice)]


def common_value(manifests: list[Manifest], key: str) -> Any:
    """A summary value that all the manifests must agree on. Raises InputError if they do not."""
    values = {manifest.summary_part(key) for manifest in manifests}
    if len(values) != 1:
        raise InputError(
            f"{manifests[0].path} and others disagree on {key}: {sorted(values)}; run dedup.signature again"
        )
    return values.pop()
