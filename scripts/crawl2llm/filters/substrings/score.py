"""Remove repeated passages from every document, except the first occurrence of each, and measure what is left.

A word goes where a window of words around it is repeated and does not stay. Writes `spans/<shard>.parquet` (formats/spans.py) and
the signals of filters/edit_filter.py. Memory: the repeated windows of one shard, 44 bytes each, and a batch of texts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.edit_filter import EditWriter
from crawl2llm.filters.substrings.fingerprints import rows_of_windows, shard_batches
from crawl2llm.filters.substrings.settings import ScoreSettings
from crawl2llm.filters.substrings.words import Batch, ngram_hashes, word_spans
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import stays_at
from crawl2llm.formats.hash_shuffle import HashTable, read_answers
from crawl2llm.formats.spans import Span
from crawl2llm.text.blocks import removal_range


def removed_words(batch: Batch, repeated: HashTable, length: int) -> npt.NDArray[np.bool_]:
    """Which words of the batch go, (words,)."""
    out = np.zeros(len(batch.words) + 1, np.int64)
    windows, table_rows = repeated.find(ngram_hashes(batch.words, length))
    is_within_text = batch.is_within_text(length)[windows]
    windows, table_rows = windows[is_within_text], table_rows[is_within_text]
    row, at = rows_of_windows(batch, windows)
    documents = np.array([batch_row["document"] for batch_row in batch.rows], np.int64)
    curated = np.array([row["curated"] for row in batch.rows], bool)
    windows = windows[~stays_at(repeated.rows[table_rows], documents[row], at) & ~curated[row]]
    np.add.at(out, windows, 1)
    np.add.at(out, windows + length, -1)
    return np.cumsum(out)[:-1] > 0


def removed_spans(text: str, is_removed: npt.NDArray[np.bool_]) -> list[Span]:
    """The places of the words that go, one span for those that follow each other. is_removed: (words,)."""
    if not is_removed.any():
        return []
    word_places = word_spans(text)
    edges = np.flatnonzero(np.diff(is_removed, prepend=False, append=False)).tolist()
    return [
        Span(*removal_range(text, word_places[first][0], word_places[last - 1][1]), "", "repeated")
        for first, last in zip(edges[::2], edges[1::2], strict=True)
    ]


class Task(ScoreSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    length = Manifest.read(args.sample).summary_part("length")
    repeated = HashTable(read_answers(args.repeated, int(shard_of(args.documents))))
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    with EditWriter(args.manifest) as writer:
        for batch in shard_batches(args, settings.skipped_by, progress, originals=True):
            is_removed = removed_words(batch, repeated, length)
            for row, start, end in zip(batch.rows, batch.text_starts().tolist(), batch.ends.tolist(), strict=True):
                writer.add_document(
                    row, removed_spans(row["text"], is_removed[start:end]), int(is_removed[start:end].sum())
                )
    writer.fill_manifest(manifest, "words")
    return writer.files


main = Program("substrings.score", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
