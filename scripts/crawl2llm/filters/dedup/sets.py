"""The shingle sets of the shard's documents that are in a candidate pair: each text is read once, in order.

Writes `part, document, shingles` (sorted distinct xxh3-64): a set for each part of `dedup.verify` that needs it, by part, so that a task
there reads its own sets only. Memory: up to 512 MB of sets, then they are written.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.dedup import previous_corpora
from crawl2llm.filters.dedup.settings import SetsSettings
from crawl2llm.formats import spans
from crawl2llm.formats.document_numbers import (
    BLOCK,
    EARLIER,
    SETS,
    WANTED_DOCUMENT,
    Numbers,
    Shingles,
    column,
    common_value,
    first_document,
    read_columns,
    shingle_lists,
    table_between,
    uint64_halves,
)
from crawl2llm.formats.documents import Writer, parquet_file, shard_of
from crawl2llm.formats.documents import texts_of_ids as document_texts
from crawl2llm.text.shingles import shingle_set

GROUP_SHINGLES = 1 << 20  # shingles of a row group


def needed_rows(files: Sequence[Path], shard: int) -> tuple[Numbers, Numbers]:
    """(row, part) of the shard's documents that a part needs, sorted, each once. files: WANTED_DOCUMENT, of all bands."""
    keys = np.zeros(0, np.int64)
    for path in files:  # one after the other: a document is in pairs of most bands
        table = table_between(path, "document", first_document(shard), first_document(shard + 1), WANTED_DOCUMENT)
        keys = np.union1d(keys, (column(table, "document") - first_document(shard)) << 16 | column(table, "part"))
    return keys >> 16, keys & 0xFFFF


def texts_by_id(documents: Path, ids: list[str], edits: Sequence[Path] = ()) -> Iterator[str]:
    """The texts of these documents of a shard, which are in its order; edits: manifests of the filters that edited texts before.

    Raises InputError if one is not there, or they are in another order.
    """

    def moved_error(name: str) -> command_line.InputError:
        return command_line.InputError(f"{documents}: the documents are newer than their signatures: {name} has moved")

    wanted_ids = pa.array(ids, pa.string())
    edits_by_id, expected = spans.read(edits, documents.stem, wanted_ids), iter(ids)
    for name, text in document_texts(documents, wanted_ids):
        if name != next(expected, None):
            raise moved_error(name)
        yield spans.EditedText(text, edits_by_id[name]).text if name in edits_by_id else text
    for name in expected:
        raise moved_error(name)


def row_groups(part: Numbers, sizes: Numbers) -> list[tuple[int, int]]:
    """Which rows go into one row group, (first, last + 1): of one part, and about GROUP_SHINGLES shingles. part: ascending."""
    at = np.cumsum(sizes) // GROUP_SHINGLES
    starts = np.flatnonzero(np.diff(part, prepend=-1) | np.diff(at, prepend=-1)).tolist()
    return list(zip(starts, [*starts[1:], len(part)], strict=True))


def write_block(writer: Writer, first: int, rows: Numbers, parts: Numbers, sets: dict[int, Shingles]) -> None:
    """Write a block of sets by part. first: the shard's first document. rows, parts: (needed,). sets: row → its shingles."""
    order = np.lexsort((rows, parts))
    rows, parts = rows[order], parts[order]
    sizes = np.array([len(sets[row]) for row in rows.tolist()], np.int64)
    for start, end in row_groups(parts, sizes):
        shingle_column = shingle_lists([sets[row] for row in rows[start:end].tolist()])
        writer.add_group(
            pa.table([pa.array(parts[start:end]), pa.array(first + rows[start:end]), shingle_column], SETS.names)
        )


def write_all(
    writer: Writer,
    shard: int,
    rows: Numbers,
    parts: Numbers,
    progress: Progress,
    shingle_sets: Iterable[tuple[int, Shingles]],
) -> int:
    """Write the sets of a shard's documents, a block at a time; returns the number of shingles.

    rows, parts: from `needed_rows`. shingle_sets: (row, its shingles) of each of these rows, ascending.
    """
    block: dict[int, Shingles] = {}
    block_shingles = start = total = 0
    for row, shingles in shingle_sets:
        block[row] = shingles
        block_shingles += len(shingles)
        if block_shingles >= BLOCK or row == rows[-1]:
            end = int(np.searchsorted(rows, row, "right"))
            write_block(writer, first_document(shard), rows[start:end], parts[start:end], block)
            total, block, block_shingles, start = total + block_shingles, {}, 0, end
        progress.add()
    return total


def texts_of_rows(args: argparse.Namespace, rows: Numbers) -> Iterator[str]:
    """The texts of these rows of the shard's signals, ascending. Raises InputError if the signals or the documents have moved."""
    identity = uint64_halves(read_columns(parquet_file(args.signals), ["id"])["id"])
    if len(rows) and rows[-1] >= len(identity):
        raise command_line.InputError(
            f"{args.pairs[0]} and others name documents that {args.signals} does not have: run dedup.band again"
        )
    ids = [f"{high:016x}{low:016x}" for high, low in identity[rows].tolist()]
    del identity
    return texts_by_id(parquet_file(args.documents), ids, args.edits)


def owning_shard(number: int, shards: int) -> int:
    """The shard of this run whose task writes the sets of an earlier corpus's shard. number: of that one. shards: of this run."""
    return (number - EARLIER) % shards


def body(args: argparse.Namespace, settings: SetsSettings, manifest: Manifest) -> list[Path]:
    shard = shard_of(args.manifest)
    bands = [Manifest.read(path) for path in args.pairs]
    k, numbers, shards = (common_value(bands, key) for key in ("shingle_words", "numbers", "shards"))
    files = [band.file(f"wanted/{shard_of(path)}.parquet") for band, path in zip(bands, args.pairs, strict=True)]
    earlier_shards = [
        earlier_shard
        for earlier_shard in previous_corpora.earlier_shards(Manifest.read(args.exact).summary_part("earlier"))
        if owning_shard(earlier_shard.number, shards) == int(shard)
    ]
    out = args.manifest.with_name(f"{shard}.parquet")
    with Writer(out, SETS, hashes=["shingles.list.element"]) as writer:
        rows, parts = needed_rows(files, int(shard))
        own_rows = np.unique(rows)
        progress = Progress(len(own_rows), "documents")
        shingle_sets = (
            (row, shingle_set(text, k, numbers))
            for row, text in zip(own_rows.tolist(), texts_of_rows(args, own_rows), strict=True)
        )
        total = write_all(writer, int(shard), rows, parts, progress, shingle_sets)
        for earlier in earlier_shards:
            rows, parts = needed_rows(files, earlier.number)
            progress = Progress(len(rows), "documents of earlier corpora")
            total += write_all(
                writer,
                earlier.number,
                rows,
                parts,
                progress,
                previous_corpora.shingle_sets(earlier.sets, np.unique(rows).tolist()),
            )
    manifest.summary = {"documents": len(own_rows), "shingles": total, "parts": common_value(bands, "parts")}
    return [out]


main = Program("dedup.sets", __doc__, SetsSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
