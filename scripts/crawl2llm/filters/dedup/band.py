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
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.chain.steps import number_of_parts
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest, scratch
from crawl2llm.filters.dedup import previous_corpora
from crawl2llm.formats.document_numbers import (
    DUPLICATE,
    EARLIER,
    HASHED,
    HELD_DOCUMENTS,
    PAIR,
    WANTED,
    Numbers,
    Shard,
    by_shard,
    column,
    exempt,
    first_of,
    hashed,
    in_order,
    members,
    opening,
    part_of,
    read,
    repeated,
    same,
    shards,
    split,
    starts,
)
from crawl2llm.formats.documents import GROUP, Writer, shard_of
from crawl2llm.formats.external_partition import Spill, by_hash, ranges
from crawl2llm.text.signatures import band_name

CHUNK = 1 << 16  # lower documents whose pairs are in memory at a time
SHARDS = 16  # shards whose wanted documents are sorted at a time
ENDS = np.dtype([("low", "i8"), ("high", "i8")])


class Buckets:
    """The documents of the buckets of two or more, sorted by (bucket, priority, id)."""

    def __init__(self, rows: npt.NDArray[np.void], most: int) -> None:
        """rows: of HASHED, in any order, all of each bucket. most: partners of a document at most."""
        rows = rows[members(rows["hash"], repeated(rows["hash"].copy()))]
        rows = rows[in_order(rows, rows["hash"])]
        first = starts(rows["hash"])
        self.documents: Numbers = rows["document"]
        self.start = opening(first)
        self.sizes = np.diff(np.append(np.flatnonzero(first), len(rows)))
        position = np.arange(len(rows)) - self.start
        position[self.documents >= first_of(EARLIER)] = 0  # they are never the lower one
        self.partners = np.minimum(position, most)
        self.cut = position - self.partners

    def pairs(self) -> Iterator[npt.NDArray[np.void]]:
        """All pairs as rows of ENDS, in pieces."""
        for at in range(0, len(self.documents), CHUNK):
            partners = self.partners[at : at + CHUNK]
            within = np.arange(partners.sum()) - np.repeat(np.cumsum(partners) - partners, partners)
            out = np.empty(len(within), ENDS)
            out["low"] = np.repeat(self.documents[at : at + CHUNK], partners)
            out["high"] = self.documents[np.repeat(self.start[at : at + CHUNK], partners) + within]
            yield out


def wanted(pairs: npt.NDArray[np.void], part: Numbers, parts: int) -> Numbers:
    """The documents of pairs and the part that needs each, as `document × parts + part`, each once, sorted. part: of each pair."""
    return np.unique(np.concatenate((pairs["low"], pairs["high"])) * parts + np.concatenate((part, part)))


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    band = band_name(int(shard_of(args.manifest)))
    signatures = [Manifest.read(path) for path in args.signals]
    bands = same(signatures, "bands")
    if band not in map(band_name, range(bands)):
        raise command_line.InputError(f"{args.manifest} names {band}, but the signatures have {bands} bands, from 00")
    own = shards(args.signals)
    exact = Manifest.read(args.exact)
    old = previous_corpora.shards(exact.part("earlier"), signatures)
    everything: list[Shard] = [*own, *old]  # the earlier ones have the higher numbers
    total = sum(shard.documents for shard in everything)
    parts = number_of_parts(len(own))
    progress = Progress(total, "documents")
    out = args.manifest.with_name(f"{shard_of(args.manifest)}.parquet")
    aside = out.parent / "wanted" / out.name
    documents, buckets, largest = 0, 0, 0
    counts = np.zeros((2, parts), np.int64)  # pairs and cut, of each part

    with scratch(args.manifest.with_name(f".{band}")) as folder:
        hashes = Spill(folder / "hashes", ranges(total, HELD_DOCUMENTS), HASHED)
        copies = by_shard(exact.file("duplicates.parquet"), [shard.number for shard in own], DUPLICATE)
        nothing = (DUPLICATE.empty_table() for _ in old)
        for shard, gone in zip(everything, chain(copies, nothing), strict=True):
            first = first_of(shard.number)
            table = read(shard.path, ["id", band, "words", "curated"])
            there = table[band].is_valid().to_numpy()
            there[column(gone, "document") - first] = False
            there[exempt(shard.path, shard.number, exact.part("skipped_by"))] = False
            table = table.filter(pa.array(there))
            values = column(table, band)
            hashes.add(by_hash(values, hashes.parts), hashed(table, first + np.flatnonzero(there), values))
            documents += len(table)
            progress.add(len(there))

        ends = Spill(folder / "pairs", parts, ENDS)
        needs = Spill(folder / "wanted", 1 + everything[-1].number // SHARDS, np.int64)
        for range_ in range(hashes.parts):
            found = Buckets(hashes.part(range_), settings["max_candidates"])
            part = part_of(found.documents, parts)
            for row, numbers in zip(counts, (found.partners, found.cut), strict=True):
                row += np.bincount(part, numbers, parts).astype(np.int64)
            buckets, largest = buckets + len(found.sizes), max(largest, int(found.sizes.max(initial=0)))
            for pairs in found.pairs():
                part = part_of(pairs["low"], parts)
                ends.add(part, pairs)
                keys = wanted(pairs, part, parts)
                needs.add(split(keys // parts)[0] // SHARDS, keys)

        with Writer(out, PAIR, GROUP) as writer:
            for number in range(parts):
                pairs = ends.part(number)
                pairs = pairs[np.lexsort((pairs["high"], pairs["low"]))]
                writer.add_table(
                    pa.table({"part": np.full(len(pairs), number), "low": pairs["low"], "high": pairs["high"]})
                )
        with Writer(aside, WANTED, GROUP) as writer:
            for block in range(needs.parts):
                keys = np.unique(needs.part(block))
                writer.add_table(pa.table({"document": keys // parts, "part": keys % parts}))
    manifest.summary = {
        "documents": documents,
        "shingle_words": same(signatures, "shingle_words"),
        "numbers": same(signatures, "numbers"),
        "bands": bands,
        "parts": parts,
        "shards": len(own),
        "buckets": buckets,
        "largest_bucket": largest,
        "pairs": int(counts[0].sum()),
        "cut": int(counts[1].sum()),
        "by_part": {str(part): {"pairs": int(made), "cut": int(cut)} for part, (made, cut) in enumerate(counts.T)},
    }
    return [out, aside]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "dedup.band",
        __doc__,
        "--config config.yaml --signals results/main/dedup/signature/*.manifest.json"
        " --exact results/main/dedup/exact/manifest.json --manifest /tmp/band/00.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, nargs="+", help="manifests of dedup.signature")
    parser.add_argument("--exact", required=True, type=Path, help="manifest of dedup.exact")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
