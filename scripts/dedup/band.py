"""Candidate pairs of one band: documents whose hash of that band is the same.

In a bucket of equal hashes a document is paired with the `max_candidates` documents of highest priority before it, so
that pairs grow with the bucket's size and not with its square; what this cuts off is counted. Exact duplicates take no
part: they share their keeper's fate. Pairs are sorted by shard and id of the lower document, one row group or more a
shard, so that `dedup.verify` reads its own part only. Memory: 8 bytes a document (the band's hash, sorted, to find what
occurs twice), then about 100 bytes for each document that shares its bucket.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scripts.dedup.signature import band_name
from scripts.dedup.tables import PAIR, column, members, ranked, read, repeated, same, without
from scripts.formats.documents import Writer, data, shard_of
from scripts.workflow import cli
from scripts.workflow.console import Progress
from scripts.workflow.manifest import Manifest

CHUNK = 4096  # lower documents whose pairs are in memory at a time
GROUP = 1 << 16  # pairs of a row group


class Buckets:
    """The documents of the buckets of two or more, sorted by (bucket, priority, id)."""

    def __init__(self, table: pa.Table, most: int) -> None:
        """table: `shard, id, hash, priority`, in any order. most: partners of a document at most."""
        self.table = table.sort_by([("hash", "ascending"), ("priority", "ascending"), ("id", "ascending")])
        hashes = column(self.table, "hash")
        first = np.concatenate(([True], hashes[1:] != hashes[:-1]))[: len(hashes)]
        rows = np.arange(len(hashes))
        self.start = np.maximum.accumulate(np.where(first, rows, 0))
        self.sizes = np.diff(np.append(np.flatnonzero(first), len(hashes)))
        position = rows - self.start
        self.partners = np.minimum(position, most)
        self.cut = position - self.partners
        order = self.table.append_column("row", pa.array(rows)).select(["shard", "id", "row"])
        self.order = order.sort_by([("shard", "ascending"), ("id", "ascending")])

    def pairs(self, rows: np.ndarray) -> pa.Table:
        """The pairs (PAIR) whose lower documents are in these rows."""
        partners = self.partners[rows]
        low = np.repeat(rows, partners)
        within = np.arange(len(low)) - np.repeat(np.cumsum(partners) - partners, partners)
        sides = self.table.take(pa.array(low)), self.table.take(pa.array(self.start[low] + within))
        columns = {
            f"{name}_{side}": table[name]
            for side, table in zip(("low", "high"), sides, strict=True)
            for name in ("shard", "id", "priority")
        }
        return pa.table(columns).sort_by([("id_low", "ascending"), ("id_high", "ascending")])

    def by_shard(self) -> Iterator[tuple[str, np.ndarray]]:
        """(shard, its rows by id), in the order of the shards' names."""
        shards = self.order["shard"].combine_chunks().dictionary_encode()
        bounds = np.flatnonzero(np.diff(shards.indices.to_numpy(), prepend=-1, append=-1)).tolist()
        rows = column(self.order, "row")
        for name, start, end in zip(shards.dictionary.to_pylist(), bounds[:-1], bounds[1:], strict=True):
            yield name, rows[start:end]


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    band = band_name(int(shard_of(args.manifest)))
    signatures = [Manifest.read(path) for path in args.signals]
    bands = same(signatures, "bands")
    if band not in map(band_name, range(bands)):
        raise cli.InputError(f"{args.manifest} names {band}, but the signatures have {bands} bands, from 00")
    shards = [(shard_of(path), data(path), data(args.exact, shard_of(path))) for path in args.signals]
    progress = Progress(3 * len(shards), "shards")

    seen = [np.zeros(0, np.uint64)]
    for _, path, exact in shards:
        table = without(read(path, ["id", band]), read(exact, ["id"])["id"])
        seen.append(column(table.select([band]).drop_null(), band))
        progress.add()
    everything = np.concatenate(seen)
    del seen
    documents, twice = len(everything), repeated(everything)
    del everything

    found = []
    for shard, path, exact in shards:
        table = read(path, ["id", band, "words", "curated"]).drop_null().rename_columns({band: "hash"})
        table = without(table.filter(pa.array(members(column(table, "hash"), twice))), read(exact, ["id"])["id"])
        table = table.append_column("priority", pa.array(ranked(table)))
        table = table.append_column("shard", pa.array([shard] * len(table), pa.string()))
        found.append(table.select(["shard", "id", "hash", "priority"]))
        progress.add()
    buckets = Buckets(pa.concat_tables(found), settings["max_candidates"])
    del found

    out = args.manifest.with_name(f"{shard_of(args.manifest)}.parquet")
    by_shard = {shard: {"pairs": 0, "cut": 0} for shard, *_ in shards}
    with Writer(out, PAIR, batch=GROUP) as writer:
        for shard, rows in buckets.by_shard():
            for start in range(0, len(rows), CHUNK):
                writer.add_table(buckets.pairs(rows[start : start + CHUNK]))
            by_shard[shard] = {"pairs": int(buckets.partners[rows].sum()), "cut": int(buckets.cut[rows].sum())}
            progress.add()
    manifest.summary = {
        "documents": documents,
        "shingle_words": same(signatures, "shingle_words"),
        "buckets": len(buckets.sizes),
        "largest_bucket": int(buckets.sizes.max(initial=0)),
        "pairs": writer.count,
        "cut": int(buckets.cut.sum()),
        "by_shard": by_shard,
    }
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "dedup.band",
        __doc__,
        "--config config.yaml --signals results/main/dedup/signature/*.manifest.json"
        " --exact results/main/dedup/exact/manifest.json --manifest /tmp/band/00.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, nargs="+", help="manifests of dedup.signature")
    parser.add_argument("--exact", required=True, type=Path, help="manifest of dedup.exact")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
