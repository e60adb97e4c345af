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

from crawl2llm.formats.document_numbers import (
    DUPLICATE,
    PAIRS,
    Numbers,
    Places,
    group_starts,
    read_columns,
    read_shards,
    shards_and_rows,
    similar_pairs,
)
from crawl2llm.formats.documents import batches

TRAIN, VALIDATION = 1, 2  # sides of a document; 0: not in the corpus

Similarities = npt.NDArray[np.float64]


@dataclass
class Leaks:
    """Training documents and, for each, the validation document that is most similar and how similar it is; sorted, (leaks,) each.

    Documents are numbers, as formats/document_numbers.py says.
    """

    document: Numbers
    validation_document: Numbers
    similarity: Similarities


class SideByDocument:
    """On which side every document of the signals is, (documents,), by its place. Memory: a byte a document."""

    def __init__(self, signals: Sequence[Path]) -> None:
        """signals: manifests of dedup.signature, of all shards."""
        shard_files = read_shards(signals)
        self.places = Places(shard_files)  # which have none for a document of an earlier corpus
        self.side = np.zeros(self.places.number, np.uint8)
        self.paths = {shard.number: shard.path for shard in shard_files}

    def document_ids(self, shard: int) -> pa.ChunkedArray:
        """The ids (binary) of a shard's documents, in their order."""
        return read_columns(self.paths[shard], ["id"])["id"]

    def set_sides(self, shard: int, ids: pa.Array, sides: npt.NDArray[np.uint8]) -> None:
        """Set the sides of a shard's documents. One that took no part in deduplication has no place here."""
        at = pc.index_in(self.document_ids(shard), value_set=ids).combine_chunks()
        present = at.is_valid().to_numpy(zero_copy_only=False)
        self.side[slice(*self.places.start[shard : shard + 2])][present] = sides[at.drop_null().to_numpy()]


def copies_in_corpus(path: Path, sides: SideByDocument) -> tuple[Numbers, Numbers]:
    """(copy, keeper) of the copies that are in the corpus, as places, sorted by copy. path: DUPLICATE."""
    parts: list[tuple[Numbers, Numbers]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for batch in batches(path, DUPLICATE.names, PAIRS):
        copy, keeper = (sides.places.places_of(batch[name].to_numpy()) for name in DUPLICATE.names)
        in_corpus = (keeper >= 0) & (sides.side[copy] > 0)
        parts.append((copy[in_corpus], keeper[in_corpus]))
    copy, keeper = (np.concatenate(part) for part in zip(*parts, strict=True))
    return copy, keeper


def cross_pairs(
    pairs: Iterable[Path], sides: SideByDocument, mask: npt.NDArray[np.uint8], keeper: Numbers, threshold: float
) -> Iterator[tuple[Numbers, Numbers, Similarities]]:
    """(text with a training document, text with a validation document, similarity) of the pairs at or above the threshold, and of itself.

    mask: the sides of all documents of a text, at the place of the one that dedup.exact keeps. keeper: those places that have copies.
    """
    both = np.unique(keeper[mask[keeper] == TRAIN | VALIDATION])
    yield both, both, np.ones(len(both))
    for batch in similar_pairs(pairs, threshold):
        low, high = sides.places.places_of(batch["low"].to_numpy()), sides.places.places_of(batch["high"].to_numpy())
        similarity = batch["similarity"].to_numpy()
        for train, validation in ((low, high), (high, low)):
            leak = (train >= 0) & (validation >= 0) & (mask[train] & TRAIN > 0) & (mask[validation] & VALIDATION > 0)
            yield train[leak], validation[leak], similarity[leak]


def nearest_texts(
    text: Numbers, validation: Numbers, similarity: Similarities
) -> tuple[Numbers, Numbers, Similarities]:
    """Of each text its most similar one, of equally similar ones the first: (text, of, similarity), sorted by text."""
    order = np.lexsort((validation, -similarity, text))
    text, validation, similarity = text[order], validation[order], similarity[order]
    first = group_starts(text)
    return text[first], validation[first], similarity[first]


def validation_documents(texts: Numbers, copy: Numbers, keeper: Numbers, side: npt.NDArray[np.uint8]) -> Numbers:
    """For each of these texts a validation document that has it: the one that dedup.exact keeps, or else its first such copy."""
    held_copies = np.flatnonzero(side[copy] == VALIDATION)
    held_copies = held_copies[np.argsort(keeper[held_copies], kind="stable")]
    documents = texts.copy()
    lacks = np.flatnonzero(side[texts] != VALIDATION)  # then a copy is there
    documents[lacks] = copy[held_copies[np.searchsorted(keeper[held_copies], texts[lacks])]]
    return documents


def find_leaks(sides: SideByDocument, pairs: Iterable[Path], exact: Path, threshold: float) -> Leaks:
    """The training documents whose similarity with a validation document is `threshold` or more.

    pairs: files of dedup.verify. exact: that of dedup.exact. Of equally similar validation documents, that of the smallest number.
    """
    copy, keeper = copies_in_corpus(exact, sides)
    mask = sides.side.copy()
    np.bitwise_or.at(mask, keeper, sides.side[copy])
    candidates = list(cross_pairs(pairs, sides, mask, keeper, threshold))
    text, validation, similarity = nearest_texts(*(np.concatenate(part) for part in zip(*candidates, strict=True)))
    validation = validation_documents(validation, copy, keeper, sides.side)

    # Every training document that has such a text.
    more = np.flatnonzero((sides.side[copy] == TRAIN) & np.isin(keeper, text))
    own_places = np.flatnonzero(sides.side[text] == TRAIN)
    document = np.concatenate((text[own_places], copy[more]))
    at = np.concatenate((own_places, np.searchsorted(text, keeper[more])))
    order = np.argsort(document, kind="stable")
    document, at = document[order], at[order]
    return Leaks(sides.places.documents(document), sides.places.documents(validation[at]), similarity[at])


def hex_ids(sides: SideByDocument, documents: Numbers) -> list[str]:
    """The ids of documents, in hex."""
    out = [""] * len(documents)
    shard_numbers, rows = shards_and_rows(documents)
    for shard in np.unique(shard_numbers).tolist():
        mine = np.flatnonzero(shard_numbers == shard)
        shard_ids = sides.document_ids(shard).take(pa.array(rows[mine]))
        for at, name in zip(mine.tolist(), shard_ids.to_pylist(), strict=True):
            out[at] = name.hex()
    return out
