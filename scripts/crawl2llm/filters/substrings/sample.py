"""Sample the words of every document, so that a repeated passage has a repeated n-gram of words in the sample.

Documents of sources that skip this filter take no part. Memory: 2 million n-grams, about 180 MB, whatever the shard; a word in
13 begins one where passages have 50 words.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.substrings.fingerprints import shard_batches, window_fingerprints
from crawl2llm.filters.substrings.settings import SampleSettings
from crawl2llm.formats import aggregate, surviving_texts
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.hash_shuffle import Dealer, Rows

FINGERPRINT = np.dtype([("hash", "u8"), ("count", "i8")])


def merge_counts(rows: Rows) -> Rows:
    """A row for each hash, counts added up. rows: of FINGERPRINT, in any order."""
    return aggregate.merge_rows(rows, ["hash"])


class Task(SampleSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    words = fingerprint_count = 0
    with Dealer(out, FINGERPRINT, merge_counts) as dealer:
        for batch in shard_batches(args, settings.skipped_by, progress):
            _, fingerprints = window_fingerprints(batch, settings.words)
            rows = np.ones(len(fingerprints), FINGERPRINT)
            rows["hash"] = fingerprints
            dealer.add(rows)
            words, fingerprint_count = words + len(batch.words), fingerprint_count + len(fingerprints)
    manifest.count_all_kept(progress.done)
    manifest.summary = {"words": words, "marks": fingerprint_count, "length": settings.words}
    return [out]


main = Program("substrings.sample", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
