"""Units of text (paragraphs, windows of words) by their hash: which is the first of its kind, and stays.

Of equal units the first stays: one of a curated source before all others, then the one whose document has the smaller hash of its id, then
the one that is nearer to the beginning of that document. That order depends on the documents alone, never on shards or workers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

from crawl2llm.formats import aggregate
from crawl2llm.formats.document_numbers import group_starts
from crawl2llm.formats.hash_shuffle import Answers, Hashes, Rows

# A unit's first place in a shard, and how often the shard has it. rank: of its document. at: its place in the document.
UNIT = np.dtype([("hash", "u8"), ("rank", "u8"), ("document", "i8"), ("at", "i8"), ("count", "i8")])
CURATED = np.uint64(1 << 63)  # ranks below it are those of curated documents


def document_rank(name: str, curated: bool) -> int:
    """The place of a document among all, smaller first. name: its id."""
    return xxhash.xxh3_64_intdigest(name.encode()) >> 1 | (0 if curated else 1 << 63)


def unit_rows(
    hashes: Hashes,
    rank: npt.NDArray[np.uint64] | int,
    document: npt.NDArray[np.int64] | int,
    at: npt.NDArray[np.int64],
) -> Rows:
    """Rows of UNIT that are there once, (hashes,)."""
    out = np.empty(len(hashes), UNIT)
    out["hash"], out["rank"], out["document"], out["at"], out["count"] = hashes, rank, document, at, 1
    return out


def merge_units(rows: Rows) -> Rows:
    """One row for each hash: its first place, with the counts added up. rows: of UNIT, in any order."""
    return aggregate.merge_rows(rows, ["hash"], order=["rank", "document", "at"])


def report_repeats(shard: npt.NDArray[np.int64], rows: Rows, keep: str, answers: Answers) -> tuple[int, int]:
    """Say to the shards which units are repeated, and where each stays. Returns (repeated units, all their places).

    shard, rows: all rows of UNIT of some hashes, a shard's number for each. keep: `first`, or `none` where all of them go.
    """
    order = np.lexsort((rows["at"], rows["document"], rows["rank"], rows["hash"]))
    shard, rows = shard[order], rows[order]
    first = group_starts(rows["hash"])
    begin = np.flatnonzero(first)
    if not len(begin):
        return 0, 0
    total = np.add.reduceat(rows["count"], begin)
    group = np.cumsum(first) - 1
    several = total[group] > 1
    stays = several & first & (keep == "first")
    answers.add(
        shard[several],
        rows["hash"][several],
        np.where(stays, rows["document"], -1)[several],
        np.where(stays, rows["at"], -1)[several],
    )
    return int((total > 1).sum()), int(total[total > 1].sum())


def stays_at(answers: Rows, document: npt.NDArray[np.int64] | int, at: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which units stay, (units,). answers: the answer to each. document, at: where each is."""
    return (answers["document"] == document) & (answers["at"] == at)
