"""Find the documents whose text is byte-equal to that of another, over all shards.

Writes one file a shard, `id, duplicate_of`: the documents that are not the keeper of their text, and that keeper. Two
passes keep the memory small: the first holds 8 bytes a document (half of the text hash, sorted, to find what occurs
twice), the second the few documents that share theirs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from scripts.dedup.tables import DUPLICATE, members, ranked, read, repeated
from scripts.formats.documents import Writer, data, shard_of
from scripts.workflow import cli
from scripts.workflow.console import Progress
from scripts.workflow.manifest import Manifest


def halves(hashes: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """The first 8 bytes of every text hash (binary(16)), (rows,)."""
    parts = [np.zeros(0, np.uint64)]
    for chunk in hashes.chunks:
        start = chunk.offset * 2
        parts.append(np.frombuffer(chunk.buffers()[1], "<u8")[start : start + 2 * len(chunk) : 2])
    return np.concatenate(parts)


def keepers(table: pa.Table) -> pa.Table:
    """`shard, id, duplicate_of` of every row that is not the first of its text hash, sorted by shard and id.

    table: `shard, id, text_hash, priority`, in any order.
    """
    table = table.sort_by([("text_hash", "ascending"), ("priority", "ascending"), ("id", "ascending")])
    group = table["text_hash"].combine_chunks().dictionary_encode().indices.to_numpy()
    first = np.diff(group, prepend=-1) != 0
    keeper = np.maximum.accumulate(np.where(first, np.arange(len(table)), 0))
    table = table.append_column("duplicate_of", table["id"].take(pa.array(keeper)))
    table = table.filter(pa.array(~first)).select(["shard", "id", "duplicate_of"])
    return table.sort_by([("shard", "ascending"), ("id", "ascending")])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shards = [(shard_of(path), data(path)) for path in args.signals]
    progress = Progress(2 * len(shards), "shards")
    seen = []
    for _, path in shards:
        seen.append(halves(read(path, ["text_hash"])["text_hash"]))
        progress.add()
    everything = np.concatenate(seen)
    del seen
    total, twice = len(everything), repeated(everything)
    del everything
    found = []
    for shard, path in shards:
        table = read(path, ["id", "text_hash", "words", "curated"])
        table = table.filter(pa.array(members(halves(table["text_hash"]), twice)))
        table = table.append_column("priority", pa.array(ranked(table)))
        table = table.append_column("shard", pa.array([shard] * len(table), pa.string()))
        found.append(table.select(["shard", "id", "text_hash", "priority"]))
        progress.add()
    copies = keepers(pa.concat_tables(found))
    files = []
    for shard, _ in shards:
        out = args.manifest.with_name(f"{shard}.parquet")
        with Writer(out, DUPLICATE) as writer:
            writer.add_table(copies.filter(pc.equal(copies["shard"], shard)))
        files.append(out)
    manifest.counts = {"in": total, "kept": total - len(copies), "dropped": {"exact": len(copies)}}
    return files


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "dedup.exact",
        __doc__,
        "--config config.yaml --signals results/main/dedup/signature/*.manifest.json --manifest /tmp/exact/manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, nargs="+", help="manifests of dedup.signature")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
