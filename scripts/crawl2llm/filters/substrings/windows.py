"""Hash the windows of words that may be repeated: those whose fingerprint is repeated (filters/substrings/fingerprints.py).

Writes, of a shard, a row for each different window with its first place there. Memory: 2 million windows, about 360 MB, and the
repeated fingerprints of the shard, 44 bytes each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.substrings.fingerprints import rows_of_windows, shard_batches, window_fingerprints
from crawl2llm.filters.substrings.settings import WindowsSettings
from crawl2llm.filters.substrings.words import ngram_hashes
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import UNIT, merge_units, unit_rows
from crawl2llm.formats.hash_shuffle import Dealer, HashTable, read_answers


class Task(WindowsSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    shard = shard_of(args.documents)
    out = args.manifest.with_name(f"{shard}.parquet")
    length = Manifest.read(args.sample).summary_part("length")
    shared = HashTable(read_answers(args.shared, int(shard)))
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    number = 0
    with Dealer(out, UNIT, merge_units) as dealer:
        for batch in shard_batches(args, settings.skipped_by, progress):
            fingerprint, _ = window_fingerprints(batch, length)
            candidates, _ = shared.find(fingerprint)
            candidates = candidates[batch.is_within_text(length)[candidates]]
            row, at = rows_of_windows(batch, candidates)
            ranks = np.array([batch_row["rank"] for batch_row in batch.rows], np.uint64)
            documents = np.array([row["document"] for row in batch.rows], np.int64)
            dealer.add(unit_rows(ngram_hashes(batch.words, length)[candidates], ranks[row], documents[row], at))
            number += len(candidates)
    manifest.count_all_kept(progress.done)
    manifest.summary = {"windows": number}
    return [out]


main = Program("substrings.windows", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
