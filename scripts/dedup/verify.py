"""The exact Jaccard similarity of every candidate pair whose lower document is in this shard.

MinHash only proposes: what is measured here is the two documents' own shingle sets, as 64-bit hashes. Signals: `id_low,
id_high, similarity`, for every candidate, so that a new threshold measures nothing again. The shard's own shingle sets
are held in blocks of up to 512 MB; the partners are read once a block, one row group at a time, and only the row groups
that hold one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from scripts.dedup.shingles import jaccard, shingle_set
from scripts.dedup.tables import PAIR, VERIFIED, read, same
from scripts.formats import spans
from scripts.formats.documents import Writer, data, shard_of
from scripts.formats.documents import texts as document_texts
from scripts.workflow import cli
from scripts.workflow.console import Progress
from scripts.workflow.manifest import Manifest

BLOCK = 1 << 26  # shingles of the shard's own documents held at a time, 8 bytes each
BINS = 20  # of the similarity histogram, 0.05 wide

Sets = dict[str, npt.NDArray[np.uint64]]


class Opened(dict[str, Path]):
    """The Parquet file of each shard, looked up when it is first read: a task depends on the shards that it reads."""

    def __init__(self, manifests: list[Path]) -> None:
        self.manifests = {shard_of(path): path for path in manifests}

    def __missing__(self, shard: str) -> Path:
        self[shard] = data(self.manifests[shard])
        return self[shard]


def candidates(files: Iterable[Path], shard: str) -> pa.Table:
    """The pairs (PAIR) of one shard's lower documents, each once, sorted by the two ids."""
    table = PAIR.empty_table()
    for path in files:  # one after the other: a pair of similar documents is in most bands
        part = read(path, PAIR.names, filters=[("shard_low", "=", shard)])
        table = pa.concat_tables([table, part.cast(PAIR)]).group_by(PAIR.names).aggregate([])
    return table.sort_by([("id_low", "ascending"), ("id_high", "ascending")])


def texts(documents: Path, wanted: pa.Array, edits: Sequence[Path] = ()) -> Iterator[tuple[str, str]]:
    """(id, text) of the wanted documents of a shard, in its order; edits: manifests of the filters that edited texts before."""
    edited = spans.read(edits, documents.stem, wanted)
    for name, text in document_texts(documents, wanted):
        yield name, spans.Edited(text, edited[name]).text if name in edited else text


def blocks(documents: Path, wanted: pa.Array, k: int, most: int, edits: Sequence[Path] = ()) -> Iterator[Sets]:
    """The shingle sets of the wanted documents of a shard, in blocks that end with the `most`-th shingle; edits: see `texts`."""
    block: Sets = {}
    held = 0
    for name, text in texts(documents, wanted, edits):
        block[name] = shingle_set(text, k)
        held += len(block[name])
        if held >= most:
            yield block
            block, held = {}, 0
    if block:
        yield block


def similarities(
    pairs: pa.Table, shard: str, documents: dict[str, Path], k: int, most: int = BLOCK, edits: Sequence[Path] = ()
) -> npt.NDArray:
    """The Jaccard similarity of every pair, (pairs,) float64.

    pairs: from `candidates`. shard: that of the lower documents. documents: the Parquet file of every shard. most, edits: see
    `blocks`. Raises InputError where a document is not where its pair says.
    """
    measured = np.full(len(pairs), np.nan)
    progress = Progress(len(pairs), "pairs")
    pairs = pairs.append_column("row", pa.array(np.arange(len(pairs))))
    for block in blocks(documents[shard], pc.unique(pairs["id_low"]), k, most, edits):
        mine = pairs.filter(pc.is_in(pairs["id_low"], value_set=pa.array(block.keys(), pa.string())))
        for other in pc.unique(mine["shard_high"]).to_pylist():
            part = mine.filter(pc.equal(mine["shard_high"], other))
            lows: dict[str, list[tuple[int, str]]] = {}
            for row, low, high in zip(*(part[name].to_pylist() for name in ("row", "id_low", "id_high")), strict=True):
                lows.setdefault(high, []).append((row, low))
            for high, text in texts(documents[other], pc.unique(part["id_high"]), edits):
                shingles = shingle_set(text, k)
                for row, low in lows[high]:
                    measured[row] = jaccard(block[low], shingles)
                progress.add(len(lows[high]))
    if (missing := np.flatnonzero(np.isnan(measured))).size:
        row = pairs.slice(int(missing[0]), 1).to_pylist()[0]
        raise cli.InputError(
            f"{missing.size} candidate pairs name documents that are not in their shard, for example {row['id_low']} of "
            f"shard {shard} and {row['id_high']} of shard {row['shard_high']}: the documents are newer than the pairs"
        )
    return measured


def histogram(similarity: npt.NDArray) -> list[int]:
    """The number of pairs in each twentieth of [0, 1]; 1 counts in the last."""
    return np.bincount(np.minimum((similarity * BINS).astype(int), BINS - 1), minlength=BINS).tolist()


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shard = shard_of(args.manifest)
    bands = [Manifest.read(path) for path in args.pairs]
    documents = Opened(args.documents)
    pairs = candidates([data(path) for path in args.pairs], shard)
    similarity = similarities(pairs, shard, documents, same(bands, "shingle_words"), edits=args.edits)
    out = args.manifest.with_name(f"{shard}.parquet")
    with Writer(out, VERIFIED) as writer:
        writer.add_table(pairs.append_column("similarity", pa.array(similarity)))
    manifest.summary = {
        "pairs": len(pairs),
        "cut": sum(band.part("by_shard", shard)["cut"] for band in bands),
        "similarity": histogram(similarity),
    }
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "dedup.verify",
        __doc__,
        "--config config.yaml --pairs results/main/dedup/band/*.manifest.json"
        " --documents results/main/ingest/extract/*.manifest.json --manifest /tmp/verify/00000.manifest.json",
    )
    parser.add_argument("--pairs", required=True, type=Path, nargs="+", help="manifests of dedup.band")
    parser.add_argument("--documents", required=True, type=Path, nargs="+", help="manifests of ingest.extract")
    parser.add_argument(
        "--edits", type=Path, nargs="*", default=[], help="manifests of the steps before that edit texts"
    )
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
