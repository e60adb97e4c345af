"""The windows of `n` words of a batch of texts, and the sample of shorter ones by which most windows are seen to be there once only.

Winnowing (Schleimer, Wilkerson, Aiken 2003, "Winnowing: local algorithms for document fingerprinting"): of the n-grams of k = n // 2
words that are in a window, the one with the least hash is the window's fingerprint. It depends on the window's words alone: of two equal
windows at two places, the fingerprints are equal, and at two places. So a window whose fingerprint is there once is there once. A text has
about 2 / (n - k + 2) fingerprints a word, and only the windows whose fingerprint is repeated need be compared themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl2llm.core.console import Progress
from crawl2llm.filters.substrings.words import Batch, ngram_hashes, sliding_minimum, word_batches
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.document_numbers import first_document
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import document_rank
from crawl2llm.formats.hash_shuffle import Hashes

NO_HASHES = np.zeros(0, np.uint64)


def fingerprint_words(n: int) -> int:
    """The words of a fingerprint of windows of n words."""
    return max(1, n // 2)


def window_fingerprints(batch: Batch, n: int) -> tuple[Hashes, Hashes]:
    """(the fingerprint of every window, those of all places, each place once).

    (words - n + 1,), with 0 if a window is of two texts; (places,).
    """
    if len(batch.words) < n:
        return NO_HASHES, NO_HASHES
    short = ngram_hashes(batch.words, fingerprint_words(n))
    width = n - fingerprint_words(n) + 1
    fingerprint = np.where(batch.is_within_text(n), sliding_minimum(short, width), np.uint64(0))
    # A place is a fingerprint where the largest of the fingerprints of the windows around it is its own: none of them is larger than it.
    edge = np.zeros(width - 1, np.uint64)
    largest = ~sliding_minimum(~np.concatenate((edge, fingerprint, edge)), width)
    return fingerprint, short[largest == short]


def shard_batches(
    args: argparse.Namespace, skipped_by: list[str], progress: Progress, **options: bool
) -> Iterator[Batch]:
    """The texts of a shard's documents in batches, each with `document` (its number), `rank` and `takes_part`.

    options: of surviving_texts.texts.
    """

    def numbered_rows() -> Iterator[dict[str, Any]]:
        document = first_document(int(shard_of(args.documents)))
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated"], **options):
            row |= {"document": document, "rank": document_rank(row["id"], row["curated"])}
            row["takes_part"] = row["source"] not in skipped_by
            yield row
            document += 1
            progress.add()

    yield from word_batches(numbered_rows())


def rows_of_windows(
    batch: Batch, windows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(which row of the batch each window is of, its first word there), (windows,) each. windows: their first words in the batch."""
    row = np.searchsorted(batch.ends, windows, "right")
    return row, windows - batch.text_starts()[row]
