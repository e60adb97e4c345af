"""Training documents that are near-duplicates of a validation document: what is measured on that one would look better than it is.

The pairs are those of dedup.verify: the candidates of its bands, each with its exact Jaccard similarity. dedup.select leaves those
below its own threshold in the corpus, on whichever side they are. Copies of one text, which it leaves where it is told to, are as near
as that text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.formats.document_numbers import DUPLICATE, PAIRS, Numbers, Places, passing, read, shards, split, starts
from crawl2llm.formats.documents import batches

TRAIN, VALIDATION = 1, 2  # sides of a document; 0: not in the corpus

Similarities = npt.NDArray[np.float64]


@dataclass
class Leaks:
    """Training documents and, for each, the validation document that is most similar and how similar it is; sorted, (leaks,) each.

    Documents are numbers, as formats/document_numbers.py says.
    """

    document: Numbers
    of: Numbers
    similarity: Similarities


class Sides:
    """On which side every document of the signals is, (documents,), by its place. Memory: a byte a document."""

    def __init__(self, signals: Sequence[Path]) -> None:
        """signals: manifests of dedup.signature, of all shards."""
        found = shards(signals)
        self.places = Places(found)  # which have none for a document of an earlier corpus
        self.side = np.zeros(self.places.number, np.uint8)
        self.paths = {shard.number: shard.path for shard in found}

    def ids(self, shard: int) -> pa.ChunkedArray:
        """The ids (binary) of a shard's documents, in their order."""
        return read(self.paths[shard], ["id"])["id"]

    def set(self, shard: int, ids: pa.Array, sides: npt.NDArray[np.uint8]) -> None:
        """Set the sides of a shard's documents. One that took no part in deduplication has no place here."""
        at = pc.index_in(self.ids(shard), value_set=ids).combine_chunks()
        there = at.is_valid().to_numpy(zero_copy_only=False)
        self.side[slice(*self.places.start[shard : shard + 2])][there] = sides[at.drop_null().to_numpy()]


def copies(path: Path, sides: Sides) -> tuple[Numbers, Numbers]:
    """(copy, keeper) of the copies that are in the corpus, as places, sorted by copy. path: DUPLICATE."""
    found: list[tuple[Numbers, Numbers]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for batch in batches(path, DUPLICATE.names, PAIRS):
        copy, keeper = (sides.places.of(batch[name].to_numpy()) for name in DUPLICATE.names)
        here = (keeper >= 0) & (sides.side[copy] > 0)
        found.append((copy[here], keeper[here]))
    copy, keeper = (np.concatenate(part) for part in zip(*found, strict=True))
    return copy, keeper


def across(
    pairs: Iterable[Path], sides: Sides, mask: npt.NDArray[np.uint8], keeper: Numbers, threshold: float
) -> Iterator[tuple[Numbers, Numbers, Similarities]]:
    """(text with a training document, text with a validation document, similarity) of the pairs at or above the threshold, and of itself.

    mask: the sides of all documents of a text, at the place of the one that dedup.exact keeps. keeper: those places that have copies.
    """
    both = np.unique(keeper[mask[keeper] == TRAIN | VALIDATION])
    yield both, both, np.ones(len(both))
    for batch in passing(pairs, threshold):
        low, high = sides.places.of(batch["low"].to_numpy()), sides.places.of(batch["high"].to_numpy())
        similarity = batch["similarity"].to_numpy()
        for one, other in ((low, high), (high, low)):
            leak = (one >= 0) & (other >= 0) & (mask[one] & TRAIN > 0) & (mask[other] & VALIDATION > 0)
            yield one[leak], other[leak], similarity[leak]


def nearest(text: Numbers, of: Numbers, similarity: Similarities) -> tuple[Numbers, Numbers, Similarities]:
    """Of each text its most similar one, of equally similar ones the first: (text, of, similarity), sorted by text."""
    order = np.lexsort((of, -similarity, text))
    text, of, similarity = text[order], of[order], similarity[order]
    first = starts(text)
    return text[first], of[first], similarity[first]


def held_out(texts: Numbers, copy: Numbers, keeper: Numbers, side: npt.NDArray[np.uint8]) -> Numbers:
    """For each of these texts a validation document that has it: the one that dedup.exact keeps, or else its first such copy."""
    held = np.flatnonzero(side[copy] == VALIDATION)
    held = held[np.argsort(keeper[held], kind="stable")]
    found = texts.copy()
    lacks = np.flatnonzero(side[texts] != VALIDATION)  # then a copy is there
    found[lacks] = copy[held[np.searchsorted(keeper[held], texts[lacks])]]
    return found


def leaks(sides: Sides, pairs: Iterable[Path], exact: Path, threshold: float) -> Leaks:
    """The training documents whose similarity with a validation document is `threshold` or more.

    pairs: files of dedup.verify. exact: that of dedup.exact. Of equally similar validation documents, that of the smallest number.
    """
    copy, keeper = copies(exact, sides)
    mask = sides.side.copy()
    np.bitwise_or.at(mask, keeper, sides.side[copy])
    found = list(across(pairs, sides, mask, keeper, threshold))
    text, of, similarity = nearest(*(np.concatenate(part) for part in zip(*found, strict=True)))
    of = held_out(of, copy, keeper, sides.side)

    # Every training document that has such a text.
    more = np.flatnonzero((sides.side[copy] == TRAIN) & np.isin(keeper, text))
    own = np.flatnonzero(sides.side[text] == TRAIN)
    document = np.concatenate((text[own], copy[more]))
    at = np.concatenate((own, np.searchsorted(text, keeper[more])))
    order = np.argsort(document, kind="stable")
    document, at = document[order], at[order]
    return Leaks(sides.places.documents(document), sides.places.documents(of[at]), similarity[at])


def names(sides: Sides, documents: Numbers) -> list[str]:
    """The ids of documents, in hex."""
    out = [""] * len(documents)
    of, rows = split(documents)
    for shard in np.unique(of).tolist():
        mine = np.flatnonzero(of == shard)
        own = sides.ids(shard).take(pa.array(rows[mine]))
        for at, name in zip(mine.tolist(), own.to_pylist(), strict=True):
            out[at] = name.hex()
    return out
