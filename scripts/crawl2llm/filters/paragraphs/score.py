"""Remove repeated paragraphs from every document, except the first occurrence of each, and measure what is left.

Writes `spans/<shard>.parquet` (formats/spans.py) and the signals of filters/edit_filter.py. Memory: the repeated paragraphs
of one shard, 44 bytes each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.edit_filter import EditWriter
from crawl2llm.filters.paragraphs.hash import paragraph_hashes
from crawl2llm.filters.paragraphs.settings import ScoreSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.document_numbers import first_document
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import stays_at
from crawl2llm.formats.hash_shuffle import HashTable, read_answers
from crawl2llm.text.blocks import removal_spans


class Task(ScoreSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    shard = int(shard_of(args.documents))
    repeated = HashTable(read_answers(args.repeated, shard))
    hash_manifest = Manifest.read(args.hashes)
    by, bytes_min = hash_manifest.summary_part("by"), hash_manifest.summary_part("bytes_min")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    document = first_document(shard)
    with EditWriter(args.manifest) as writer:
        for row in surviving_texts.texts(
            args.documents, args.verdicts, args.edits, ["source", "curated"], originals=True
        ):
            removed_blocks: list[int] = []
            if not row["curated"] and row["source"] not in settings.skipped_by and len(repeated.rows):
                block_hashes, at = paragraph_hashes(row["text"], by, bytes_min)
                matched, table_rows = repeated.find(block_hashes)
                is_removed = ~stays_at(repeated.rows[table_rows], document, at[matched])
                removed_blocks = at[matched][is_removed].tolist()
            writer.add_document(
                row,
                removal_spans(row["text"], removed_blocks, "repeated", by) if removed_blocks else [],
                len(removed_blocks),
            )
            document += 1
            progress.add()
    writer.fill_manifest(manifest, "paragraphs")
    return writer.files


main = Program("paragraphs.score", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
