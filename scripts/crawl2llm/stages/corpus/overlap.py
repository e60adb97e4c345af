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

from crawl2llm.core.settings import Number, setting
from crawl2llm.filters.dedup.settings import SignatureSettings
from crawl2llm.formats.documents import batches
from crawl2llm.stages.corpus.settings import ReferenceSettings
from crawl2llm.text.minhash import MinHasher
from crawl2llm.text.shingles import jaccard, shingle_set
from crawl2llm.text.signatures import band_names, compute_signals

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


class ReferenceTask(ReferenceSettings):
    """What corpus.reference is given: what main's dedup and split call a near-duplicate."""

    similarity: Number = setting(..., "As corpus.split.similarity of main.")
    signature: SignatureSettings = setting(..., "As dedup.signature of main.")


def make_hasher(settings: SignatureSettings) -> MinHasher:
    """What hashes bands."""
    return MinHasher(settings.permutations, settings.bands, settings.rows, settings.seed)


def band_hashes(texts: list[str], settings: SignatureSettings, by: MinHasher) -> list[list[int] | None]:
    """The hashes of the bands of each text; None of one without a word."""
    columns = band_names(by.bands)
    signals = compute_signals(texts, settings.shingle_words, by, settings.numbers)
    rows = [[signed[name] for name in columns] for signed in signals]
    return [None if row[0] is None else row for row in rows]


def row_batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in lists of about BATCH characters of text."""
    pending: list[Row] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row["text"])
        if size >= BATCH:
            yield pending
            pending, size = [], 0
    if pending:
        yield pending


class Reference:
    """The documents that main holds out. Near-duplicates are found by `nearest_documents`."""

    def __init__(self, path: Path, settings: ReferenceTask) -> None:
        """path: REFERENCE."""
        self.similarity, self.signature = settings.similarity, settings.signature
        self.hasher = make_hasher(settings.signature)
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
            with_bands = np.flatnonzero(batch["bands"].is_valid().to_numpy(zero_copy_only=False))
            with_words += (first + with_bands).tolist()
            flat = batch["bands"].drop_null().flatten().to_numpy()
            hashed.append(flat.reshape(len(with_bands), self.hasher.bands))
        self.known_ids = set(self.ids)
        all_hashes = np.concatenate(hashed) if hashed else np.zeros((0, self.hasher.bands), np.uint64)
        self.order = [np.argsort(all_hashes[:, band], kind="stable") for band in range(self.hasher.bands)]
        self.keys = [all_hashes[order, band] for band, order in enumerate(self.order)]
        self.place = np.array(with_words, np.int64)

    def candidates(self, hashed: Bands) -> list[list[int]]:
        """For each text, the places of the documents that have the same hash of some band, ascending."""
        places_by_text: list[set[int]] = [set() for _ in range(len(hashed))]
        for band, (keys, order) in enumerate(zip(self.keys, self.order, strict=True)):
            first, last = (np.searchsorted(keys, hashed[:, band], side) for side in ("left", "right"))
            for text in np.flatnonzero(last > first).tolist():
                places_by_text[text].update(self.place[order[first[text] : last[text]]].tolist())
        return [sorted(places) for places in places_by_text]

    def nearest_documents(self, texts: Sequence[str]) -> list[tuple[str, float] | None]:
        """(id, similarity) of the document that each text is a near-duplicate of: the most similar one, of equal ones the first id."""
        hashed = band_hashes(list(texts), self.signature, self.hasher)
        with_words = [number for number, row in enumerate(hashed) if row is not None]
        out: list[tuple[str, float] | None] = [None] * len(texts)
        candidates = self.candidates(
            np.array([hashed[n] for n in with_words], np.uint64).reshape(len(with_words), self.hasher.bands)
        )
        for number, places in zip(with_words, candidates, strict=True):
            if places:
                shingles = shingle_set(texts[number], self.signature.shingle_words, self.signature.numbers)
                measured = [(-jaccard(shingles, self.shingles[place]), self.ids[place]) for place in places]
                similarity, name = min(measured)
                if -similarity >= self.similarity:
                    out[number] = (name, -similarity)
        return out
