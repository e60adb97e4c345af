"""Training documents that are near-duplicates of a validation document: what is measured on that one would look better than it is.

The pairs are those of dedup.verify: the candidates of its bands, each with its exact Jaccard similarity. dedup.select leaves those
below its own threshold in the corpus, on whichever side they are. Copies of one text, which it leaves where it is told to, are as near
as that text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from scripts.dedup.tables import DUPLICATE, ROW_BITS, VERIFIED, Numbers, first_of, numbered, read
from scripts.formats.documents import batches, data
from scripts.workflow.manifest import Manifest

TRAIN, VALIDATION = 1, 2  # sides of a document; 0: not in the corpus
BATCH = 1 << 20  # pairs read at a time


def binary(ids: Iterable[str]) -> pa.Array:
    """Ids in hex as those of signals."""
    return pa.array([bytes.fromhex(name) for name in ids], pa.binary(16))


@dataclass
class Leaks:
    """Training documents and, for each, the validation document that is most similar and how similar it is; sorted, (leaks,) each.

    Documents are numbers, as scripts/dedup/tables.py says.
    """

    document: Numbers
    of: Numbers
    similarity: npt.NDArray[np.float64]


@dataclass
class Sides:
    """On which side every document of the signals is. Memory: a byte a document.

    signals: manifests of dedup.signature, of all shards.
    """

    signals: Sequence[Path]
    side: npt.NDArray[np.uint8] = field(init=False)
    base: Numbers = field(init=False)  # by shard: the place of its first document; the last is that of the end

    def __post_init__(self) -> None:
        found = numbered(self.signals)
        sizes = np.zeros(found[-1][0] + 1, np.int64)
        for shard, path in found:
            sizes[shard] = Manifest.read(path).part("documents")
        self.base = np.concatenate(([0], np.cumsum(sizes)))
        self.side = np.zeros(self.base[-1], np.uint8)
        self.paths = dict(found)

    def ids(self, shard: int) -> pa.ChunkedArray:
        """The ids (binary) of a shard's documents, in their order."""
        return read(data(self.paths[shard]), ["id"])["id"]

    def set(self, shard: int, ids: pa.Array, sides: npt.NDArray[np.uint8]) -> None:
        """Set the sides of a shard's documents. One that took no part in deduplication has no place here."""
        at = pc.index_in(self.ids(shard), value_set=ids).combine_chunks()
        there = at.is_valid().to_numpy(zero_copy_only=False)
        self.side[self.base[shard] : self.base[shard + 1]][there] = sides[at.drop_null().to_numpy()]

    def place(self, documents: Numbers) -> Numbers:
        """The places of documents; -1 for one of an earlier corpus."""
        shard = np.minimum(documents >> ROW_BITS, len(self.base) - 1)
        here = self.base[shard] + (documents & ((1 << ROW_BITS) - 1))
        return np.where(shard < len(self.base) - 1, here, -1)

    def numbers(self, places: Numbers) -> Numbers:
        """The documents at these places."""
        shard = np.searchsorted(self.base, places, side="right") - 1
        return (shard << ROW_BITS) + places - self.base[shard]


def copies(path: Path, sides: Sides) -> tuple[Numbers, Numbers]:
    """(copy, keeper) of the copies that are in the corpus, as places, sorted by copy. path: DUPLICATE."""
    found: list[tuple[Numbers, Numbers]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for batch in batches(path, DUPLICATE.names, BATCH):
        copy, keeper = (sides.place(batch[name].to_numpy()) for name in DUPLICATE.names)
        here = (keeper >= 0) & (sides.side[copy] > 0)
        found.append((copy[here], keeper[here]))
    copy, keeper = (np.concatenate(part) for part in zip(*found, strict=True))
    return copy, keeper


def across(
    pairs: Iterable[Path], sides: Sides, mask: npt.NDArray[np.uint8], keeper: Numbers, threshold: float
) -> Iterator[tuple[Numbers, Numbers, npt.NDArray[np.float64]]]:
    """(text with a training document, text with a validation document, similarity) of the pairs at or above the threshold, and of itself.

    mask: the sides of all documents of a text, at the place of the one that dedup.exact keeps. keeper: those places that have copies.
    """
    both = np.unique(keeper[mask[keeper] == TRAIN | VALIDATION])
    yield both, both, np.ones(len(both))
    for path in pairs:
        for batch in batches(path, VERIFIED.names, BATCH):
            batch = batch.filter(pc.greater_equal(batch["similarity"], threshold))
            low, high = sides.place(batch["low"].to_numpy()), sides.place(batch["high"].to_numpy())
            same = batch["similarity"].to_numpy()
            for one, other in ((low, high), (high, low)):
                leak = (one >= 0) & (other >= 0) & (mask[one] & TRAIN > 0) & (mask[other] & VALIDATION > 0)
                yield one[leak], other[leak], same[leak]


def leaks(sides: Sides, pairs: Iterable[Path], exact: Path, threshold: float) -> Leaks:
    """The training documents whose similarity with a validation document is `threshold` or more.

    pairs: files of dedup.verify. exact: that of dedup.exact. Of equally similar validation documents, that of the smallest number.
    """
    copy, keeper = copies(exact, sides)
    mask = sides.side.copy()
    np.bitwise_or.at(mask, keeper, sides.side[copy])
    found = list(across(pairs, sides, mask, keeper, threshold))
    text, of, same = (np.concatenate(part) for part in zip(*found, strict=True))

    # Of each text, the most similar one; then a validation document with that text.
    order = np.lexsort((of, -same, text))
    text, of, same = text[order], of[order], same[order]
    first = np.concatenate(([True], text[1:] != text[:-1])) if len(text) else np.zeros(0, bool)
    text, of, same = text[first], of[first], same[first]
    held = np.flatnonzero(sides.side[copy] == VALIDATION)
    held = held[np.argsort(keeper[held], kind="stable")]
    twin = np.searchsorted(keeper[held], of)
    lacks = np.flatnonzero(sides.side[of] != VALIDATION)  # then a copy of it is there
    of[lacks] = copy[held[twin[lacks]]]

    # Every training document that has such a text.
    more = np.flatnonzero((sides.side[copy] == TRAIN) & np.isin(keeper, text))
    more_at = np.searchsorted(text, keeper[more])
    own = np.flatnonzero(sides.side[text] == TRAIN)
    document = np.concatenate((text[own], copy[more]))
    at = np.concatenate((own, more_at))
    order = np.argsort(document, kind="stable")
    return Leaks(sides.numbers(document[order]), sides.numbers(of[at[order]]), same[at[order]])


def names(sides: Sides, documents: Numbers) -> list[str]:
    """The ids of documents, in hex."""
    out = [""] * len(documents)
    for shard in np.unique(documents >> ROW_BITS).tolist():
        mine = np.flatnonzero(documents >> ROW_BITS == shard)
        own = sides.ids(shard).take(pa.array(documents[mine] - first_of(shard)))
        for at, name in zip(mine.tolist(), own.to_pylist(), strict=True):
            out[at] = name.hex()
    return out
