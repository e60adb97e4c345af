"""Candidate pairs of one band: documents whose hash of that band is the same.

In a bucket of equal hashes a document is paired with the `max_candidates` documents of highest priority before it, so
that pairs grow with the bucket's size and not with its square; what this cuts off is counted. Exact duplicates take no
part, for they share their keeper's fate; nor do documents of sources that skip deduplication.

Writes the pairs by the task of `dedup.verify` that measures them, and `wanted/<band>.parquet`: their documents by shard, for `dedup.sets`.
Documents are dealt out by ranges of the band's hash, and each range is sorted by itself: memory is that of HELD_DOCUMENTS, and of the
pairs of one part; disk is 40 bytes a document while it works, and 16 for each pair and each of its documents.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.chain.step_program import Program
from crawl2llm.chain.steps import number_of_parts
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.dedup import previous_corpora
from crawl2llm.filters.dedup.settings import BandSettings
from crawl2llm.formats.document_numbers import (
    DUPLICATE,
    EARLIER,
    HASHED_DOCUMENT,
    HELD_DOCUMENTS,
    PAIR,
    WANTED_DOCUMENT,
    Numbers,
    Shard,
    column,
    common_value,
    exempt_rows,
    first_document,
    group_starts,
    hashed_rows,
    occur_in,
    opening_rows,
    part_of,
    priority_order,
    read_columns,
    read_shards,
    repeated_values,
    shards_and_rows,
    tables_by_shard,
)
from crawl2llm.formats.documents import GROUP, Writer, shard_of
from crawl2llm.formats.external_partition import Spill, count_parts, part_by_hash
from crawl2llm.text.signatures import band_name

CHUNK = 1 << 16  # lower documents whose pairs are in memory at a time
SHARDS_SORTED = 16  # shards whose wanted documents are sorted at a time
ENDS = np.dtype([("low", "i8"), ("high", "i8")])


class Buckets:
    """The documents of the buckets of two or more, sorted by (bucket, priority, id)."""

    def __init__(self, rows: npt.NDArray[np.void], max_candidates: int) -> None:
        """rows: of HASHED_DOCUMENT, in any order, all of each bucket. max_candidates: partners of a document at most."""
        rows = rows[occur_in(rows["hash"], repeated_values(rows["hash"].copy()))]
        rows = rows[priority_order(rows, rows["hash"])]
        first = group_starts(rows["hash"])
        self.documents: Numbers = rows["document"]
        self.start = opening_rows(first)
        self.sizes = np.diff(np.append(np.flatnonzero(first), len(rows)))
        position = np.arange(len(rows)) - self.start
        position[self.documents >= first_document(EARLIER)] = 0  # they are never the lower one
        self.partners = np.minimum(position, max_candidates)
        self.cut = position - self.partners

    def candidate_pairs(self) -> Iterator[npt.NDArray[np.void]]:
        """All pairs as rows of ENDS, in pieces."""
        for at in range(0, len(self.documents), CHUNK):
            partners = self.partners[at : at + CHUNK]
            within = np.arange(partners.sum()) - np.repeat(np.cumsum(partners) - partners, partners)
            out = np.empty(len(within), ENDS)
            out["low"] = np.repeat(self.documents[at : at + CHUNK], partners)
            out["high"] = self.documents[np.repeat(self.start[at : at + CHUNK], partners) + within]
            yield out


def document_part_keys(pairs: npt.NDArray[np.void], part: Numbers, parts: int) -> Numbers:
    """The documents of pairs and the part that needs each, as `document × parts + part`, each once, sorted. part: of each pair."""
    return np.unique(np.concatenate((pairs["low"], pairs["high"])) * parts + np.concatenate((part, part)))


def body(args: argparse.Namespace, settings: BandSettings, manifest: Manifest) -> list[Path]:
    band = band_name(int(shard_of(args.manifest)))
    signatures = [Manifest.read(path) for path in args.signals]
    bands = common_value(signatures, "bands")
    if band not in map(band_name, range(bands)):
        raise command_line.InputError(f"{args.manifest} names {band}, but the signatures have {bands} bands, from 00")
    own_shards = read_shards(args.signals)
    exact = Manifest.read(args.exact)
    earlier_shards = previous_corpora.earlier_shards(exact.summary_part("earlier"), signatures)
    all_shards: list[Shard] = [*own_shards, *earlier_shards]  # the earlier ones have the higher numbers
    total = sum(shard.documents for shard in all_shards)
    parts = number_of_parts(len(own_shards))
    progress = Progress(total, "documents")
    out = args.manifest.with_name(f"{shard_of(args.manifest)}.parquet")
    wanted_file = out.parent / "wanted" / out.name
    documents, buckets, largest = 0, 0, 0
    counts = np.zeros((2, parts), np.int64)  # pairs and cut, of each part

    with scratch_folder(args.manifest.with_name(f".{band}")) as folder:
        hashes = Spill(folder / "hashes", count_parts(total, HELD_DOCUMENTS), HASHED_DOCUMENT)
        copies = tables_by_shard(exact.file("duplicates.parquet"), [shard.number for shard in own_shards], DUPLICATE)
        no_copies = (DUPLICATE.empty_table() for _ in earlier_shards)
        for shard, shard_copies in zip(all_shards, chain(copies, no_copies), strict=True):
            first = first_document(shard.number)
            table = read_columns(shard.path, ["id", band, "words", "curated"])
            takes_part = table[band].is_valid().to_numpy()
            takes_part[column(shard_copies, "document") - first] = False
            takes_part[exempt_rows(shard.path, shard.number, exact.summary_part("skipped_by"))] = False
            table = table.filter(pa.array(takes_part))
            values = column(table, band)
            hashes.add(
                part_by_hash(values, hashes.parts), hashed_rows(table, first + np.flatnonzero(takes_part), values)
            )
            documents += len(table)
            progress.add(len(takes_part))

        ends = Spill(folder / "pairs", parts, ENDS)
        # Those that there are: the numbers of earlier shards begin far above.
        blocks = np.unique([shard.number // SHARDS_SORTED for shard in all_shards])
        needs = Spill(folder / "wanted", len(blocks), np.int64)
        for range_ in range(hashes.parts):
            range_buckets = Buckets(hashes.part(range_), settings.max_candidates)
            part = part_of(range_buckets.documents, parts)
            for row, numbers in zip(counts, (range_buckets.partners, range_buckets.cut), strict=True):
                row += np.bincount(part, numbers, parts).astype(np.int64)
            buckets, largest = buckets + len(range_buckets.sizes), max(largest, int(range_buckets.sizes.max(initial=0)))
            for pairs in range_buckets.candidate_pairs():
                part = part_of(pairs["low"], parts)
                ends.add(part, pairs)
                keys = document_part_keys(pairs, part, parts)
                needs.add(np.searchsorted(blocks, shards_and_rows(keys // parts)[0] // SHARDS_SORTED), keys)

        with Writer(out, PAIR, GROUP) as writer:
            for number in range(parts):
                pairs = ends.part(number)
                pairs = pairs[np.lexsort((pairs["high"], pairs["low"]))]
                writer.add_table(
                    pa.table({"part": np.full(len(pairs), number), "low": pairs["low"], "high": pairs["high"]})
                )
        with Writer(wanted_file, WANTED_DOCUMENT, GROUP) as writer:
            for block in range(needs.parts):
                keys = np.unique(needs.part(block))
                writer.add_table(pa.table({"document": keys // parts, "part": keys % parts}))
    manifest.summary = {
        "documents": documents,
        "shingle_words": common_value(signatures, "shingle_words"),
        "numbers": common_value(signatures, "numbers"),
        "bands": bands,
        "parts": parts,
        "shards": len(own_shards),
        "buckets": buckets,
        "largest_bucket": largest,
        "pairs": int(counts[0].sum()),
        "cut": int(counts[1].sum()),
        "by_part": {
            str(part): {"pairs": int(pair_count), "cut": int(cut)} for part, (pair_count, cut) in enumerate(counts.T)
        },
    }
    return [out, wanted_file]


main = Program("dedup.band", __doc__, BandSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
