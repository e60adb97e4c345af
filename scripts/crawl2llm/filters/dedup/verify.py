"""The exact Jaccard similarity of every candidate pair of this part.

MinHash only proposes: what is measured here is the two documents' own shingle sets, as 64-bit hashes. Signals: `low, high,
similarity`, for every candidate, so that a new threshold measures nothing again. The sets of lower documents are held in
blocks of up to 512 MB; all sets of the part are read once a block, one row group at a time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl2llm.chain import command_line
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.dedup.settings import VerifySettings
from crawl2llm.formats.document_numbers import (
    BLOCK,
    PAIR,
    SETS,
    VERIFIED_PAIR,
    Numbers,
    Shingles,
    batch_by_size,
    column,
    common_value,
    first_document,
    group_starts,
    occur_in,
    part_of,
    shards_and_rows,
    table_between,
)
from crawl2llm.formats.documents import Writer, open_parquet, parquet_file, shard_of
from crawl2llm.text.shingles import jaccard

BINS = 20  # of the similarity histogram, 0.05 wide


def candidate_pairs(files: Iterable[Path], part: int) -> tuple[Numbers, Numbers]:
    """(low, high) of the pairs of one part, each once, sorted. files: PAIR, of all bands."""
    low, high = np.zeros((2, 0), np.int64)
    for path in files:  # one after the other: a pair of similar documents is in most bands
        table = table_between(path, "part", part, part + 1, PAIR)
        low, high = np.concatenate((low, column(table, "low"))), np.concatenate((high, column(table, "high")))
        order = np.lexsort((high, low))
        low, high = low[order], high[order]
        first = group_starts(low, high)
        low, high = low[first], high[first]
    return low, high


def sets_of_part(path: Path, part: int) -> Iterator[tuple[Numbers, Shingles, list[int]]]:
    """The sets of one part from a file of SETS, a row group at a time: documents, all their shingles, and where each set begins and ends.

    The set of `documents[n]` is `shingles[ends[n] : ends[n + 1]]`.
    """
    with open_parquet(path) as file:
        for group in range(file.num_row_groups):
            if file.metadata.row_group(group).column(0).statistics.min == part:  # a row group is of one part
                table = file.read_row_group(group, SETS.names[1:]).combine_chunks()
                lists = table["shingles"].chunk(0)
                yield column(table, "document"), lists.values.to_numpy(), lists.offsets.to_numpy().tolist()


def set_blocks(files: Iterable[Path], part: int, low: Numbers, shingles_max: int) -> Iterator[dict[int, Shingles]]:
    """The sets of the lower documents, in blocks that end with the `shingles_max`-th shingle.

    files: of the shards that these are in. low: sorted.
    """

    def lower_sets() -> Iterator[tuple[int, Shingles]]:
        for path in files:
            for documents, shingles, ends in sets_of_part(path, part):
                for at in np.flatnonzero(occur_in(documents, low)).tolist():
                    # A copy: not the row group that it is a part of
                    yield int(documents[at]), shingles[ends[at] : ends[at + 1]].copy()

    return map(dict, batch_by_size(lower_sets(), lambda row_and_set: len(row_and_set[1]), shingles_max))


def measure_similarities(
    low: Numbers, high: Numbers, files: Sequence[tuple[int, Path]], part: int, parts: int, shingles_max: int = BLOCK
) -> npt.NDArray[np.float64]:
    """The Jaccard similarity of every pair, (pairs,) float64.

    low, high: from `candidate_pairs`. files: (shard, its file of SETS) of all shards. shingles_max: see `set_blocks`. Raises InputError
    where a document of a pair has no set.
    """
    measured = np.full(len(low), np.nan)
    progress = Progress(len(low), "pairs")
    order = np.argsort(high, kind="stable")
    by_high = high[order]
    own_files = [path for shard, path in files if part_of(np.array([first_document(shard)]), parts)[0] == part]
    for block in set_blocks(own_files, part, low, shingles_max):
        for _, path in files:
            for documents, shingles, ends in sets_of_part(path, part):
                first, last = (np.searchsorted(by_high, documents, side) for side in ("left", "right"))
                for at in np.flatnonzero(first < last).tolist():
                    higher_set = shingles[ends[at] : ends[at + 1]]
                    for row in order[first[at] : last[at]].tolist():
                        if (lower_set := block.get(int(low[row]))) is not None:
                            measured[row] = jaccard(lower_set, higher_set)
                            progress.add()
    if (missing := np.flatnonzero(np.isnan(measured))).size:
        names = " and ".join(document_text(ends[missing]) for ends in (low, high))
        raise command_line.InputError(
            f"{missing.size} candidate pairs name documents that have no shingle set, for example {names}: run dedup.sets again"
        )
    return measured


def document_text(documents: Numbers) -> str:
    """The first of these documents for a person."""
    shard, row = shards_and_rows(documents)
    return f"document {row[0]} of shard {shard[0]:05d}"


def similarity_histogram(similarity: npt.NDArray) -> list[int]:
    """The number of pairs in each twentieth of [0, 1]; 1 counts in the last."""
    return np.bincount(np.minimum((similarity * BINS).astype(int), BINS - 1), minlength=BINS).tolist()


def body(args: argparse.Namespace, settings: VerifySettings, manifest: Manifest) -> list[Path]:
    part = shard_of(args.manifest)
    bands = [Manifest.read(path) for path in args.pairs]
    parts = common_value(bands, "parts")
    files = [(int(shard_of(path)), parquet_file(path)) for path in args.sets]
    low, high = candidate_pairs([parquet_file(path) for path in args.pairs], int(part))
    similarity = measure_similarities(low, high, files, int(part), parts)
    out = args.manifest.with_name(f"{part}.parquet")
    with Writer(out, VERIFIED_PAIR) as writer:
        writer.add_table(pa.table({"low": low, "high": high, "similarity": similarity}))
    manifest.summary = {
        "pairs": len(low),
        "cut": sum(band.summary_part("by_part", str(int(part)))["cut"] for band in bands),
        "similarity": similarity_histogram(similarity),
        "parts": parts,
    }
    return [out]


main = Program("dedup.verify", __doc__, VerifySettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
