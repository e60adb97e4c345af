"""Hash the paragraphs of every document: of a shard, a row for each different one, with its first place there.

Documents of sources that skip this filter take no part; those of curated sources come first and stay as they are. Memory: 2 million
paragraphs, about 360 MB, whatever the shard.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import xxhash

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.paragraphs.settings import HashSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.document_numbers import first_document
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import UNIT, document_rank, merge_units, unit_rows
from crawl2llm.formats.hash_shuffle import Dealer, Hashes
from crawl2llm.text.blocks import compared_blocks


def paragraph_hashes(text: str, by: str, bytes_min: int) -> tuple[Hashes, np.ndarray]:
    """(hash of every paragraph that is compared, its number among all), (paragraphs,) each. See the keys of `paragraphs.hash`."""
    numbered_blocks = [
        (number, block) for number, block in enumerate(compared_blocks(text, by)) if len(block) >= max(1, bytes_min)
    ]
    at = np.array([number for number, _ in numbered_blocks], np.int64)
    return np.array([xxhash.xxh3_64_intdigest(block) for _, block in numbered_blocks], np.uint64), at


class Task(HashSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    shard = shard_of(args.documents)
    out = args.manifest.with_name(f"{shard}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    document, paragraphs = first_document(int(shard)), 0
    with Dealer(out, UNIT, merge_units) as dealer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated"]):
            if row["source"] not in settings.skipped_by:
                block_hashes, at = paragraph_hashes(row["text"], settings.by, settings.bytes_min)
                dealer.add(unit_rows(block_hashes, document_rank(row["id"], row["curated"]), document, at))
                paragraphs += len(at)
            document += 1
            progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = {"paragraphs": paragraphs, "by": settings.by, "bytes_min": settings.bytes_min}
    return [out]


main = Program("paragraphs.hash", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
