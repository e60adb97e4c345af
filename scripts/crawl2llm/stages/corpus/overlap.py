"""What main holds out, as an index in memory, and the near-duplicates of it: candidates by MinHash bands, then their exact similarity.

The bands are those that main's dedup finds candidates by, and the similarity is that of main's corpus.split: a training document of a
variant is judged as one of main's is. Memory: the index, about 8 bytes a word of the documents held out; the other side is streamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl2llm.chain.config_schema import completed
from crawl2llm.formats.documents import batches
from crawl2llm.text.minhash import MinHasher
from crawl2llm.text.shingles import jaccard, shingle_set
from crawl2llm.text.signatures import names, sign

BATCH = 1 << 19  # characters of text that are hashed at a time
REFERENCE = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        # Null where main splits by document: other documents of that origin are in its training text.
        ("origin", pa.string()),
        ("bands", pa.list_(pa.uint64())),  # hashes, in their order; null for a text without a word
        ("shingles", pa.list_(pa.uint64())),  # distinct xxh3-64, sorted
    ]
)
Bands = npt.NDArray[np.uint64]  # (texts with words, bands)
Row = dict[str, Any]


def hasher(settings: dict[str, Any]) -> MinHasher:
    """What hashes bands under the settings of dedup.signature."""
    return MinHasher(*(settings[key] for key in ("permutations", "bands", "rows", "seed")))


def bands(texts: list[str], settings: dict[str, Any], by: MinHasher) -> list[list[int] | None]:
    """The hashes of the bands of each text; None of one without a word. settings: of dedup.signature."""
    columns = names(by.bands)
    signals = sign(texts, settings["shingle_words"], by, settings["numbers"])
    found = [[signed[name] for name in columns] for signed in signals]
    return [None if row[0] is None else row for row in found]


def batched(found: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in lists of about BATCH characters of text."""
    held: list[Row] = []
    size = 0
    for row in found:
        held.append(row)
        size += len(row["text"])
        if size >= BATCH:
            yield held
            held, size = [], 0
    if held:
        yield held


class Reference:
    """The documents that main holds out. Near-duplicates are found by `nearest`."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        """path: REFERENCE. settings: of corpus.reference."""
        self.similarity, self.signature = settings["similarity"], completed("dedup.signature", settings["signature"])
        self.hasher = hasher(settings["signature"])
        self.ids: list[str] = []
        self.origins: dict[str, str] = {}  # origin → the first id of it
        self.shingles: list[npt.NDArray[np.uint64]] = []
        hashed: list[Bands] = []
        with_words: list[int] = []
        for batch in batches(path):
            first = len(self.ids)
            self.ids += batch["id"].to_pylist()
            for name, origin in zip(batch["id"].to_pylist(), batch["origin"].to_pylist(), strict=True):
                if origin is not None:
                    self.origins[origin] = min(name, self.origins.get(origin, name))
            self.shingles += [row.values.to_numpy().copy() for row in batch["shingles"]]
            there = np.flatnonzero(batch["bands"].is_valid().to_numpy(zero_copy_only=False))
            with_words += (first + there).tolist()
            flat = batch["bands"].drop_null().flatten().to_numpy()
            hashed.append(flat.reshape(len(there), self.hasher.bands))
        self.known = set(self.ids)
        every = np.concatenate(hashed) if hashed else np.zeros((0, self.hasher.bands), np.uint64)
        self.order = [np.argsort(every[:, band], kind="stable") for band in range(self.hasher.bands)]
        self.keys = [every[order, band] for band, order in enumerate(self.order)]
        self.place = np.array(with_words, np.int64)

    def candidates(self, hashed: Bands) -> list[list[int]]:
        """For each text, the places of the documents that have the same hash of some band, ascending."""
        found: list[set[int]] = [set() for _ in range(len(hashed))]
        for band, (keys, order) in enumerate(zip(self.keys, self.order, strict=True)):
            first, last = (np.searchsorted(keys, hashed[:, band], side) for side in ("left", "right"))
            for text in np.flatnonzero(last > first).tolist():
                found[text].update(self.place[order[first[text] : last[text]]].tolist())
        return [sorted(places) for places in found]

    def nearest(self, texts: Sequence[str]) -> list[tuple[str, float] | None]:
        """(id, similarity) of the document that each text is a near-duplicate of: the most similar one, of equal ones the first id."""
        hashed = bands(list(texts), self.signature, self.hasher)
        there = [number for number, row in enumerate(hashed) if row is not None]
        out: list[tuple[str, float] | None] = [None] * len(texts)
        found = self.candidates(np.array([hashed[n] for n in there], np.uint64).reshape(len(there), self.hasher.bands))
        for number, places in zip(there, found, strict=True):
            if places:
                own = shingle_set(texts[number], self.signature["shingle_words"], self.signature["numbers"])
                measured = [(-jaccard(own, self.shingles[place]), self.ids[place]) for place in places]
                similarity, name = min(measured)
                if -similarity >= self.similarity:
                    out[number] = (name, -similarity)
        return out
