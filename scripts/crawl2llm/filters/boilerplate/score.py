"""Take the lines that are frequent within their host out of every document, and measure what is left.

Writes `spans/<shard>.parquet` (formats/spans.py) and the signals of filters/edit_filter.py. Memory: the frequent lines of one
shard's hosts, about 50 bytes each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.boilerplate import keys
from crawl2llm.filters.boilerplate.count import participating_host
from crawl2llm.filters.boilerplate.settings import ScoreSettings
from crawl2llm.filters.edit_filter import EditWriter
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.hash_shuffle import read_answers
from crawl2llm.text.blocks import removal_spans


class Task(ScoreSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    frequent = set(read_answers(args.frequent, int(shard_of(args.documents)))["hash"].tolist())
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    columns = ["source", "curated", "url"]
    with EditWriter(args.manifest) as writer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, columns, originals=True):
            host = participating_host(row, settings.skipped_by) if frequent else None
            line_keys = keys.line_keys(row["text"], host) if host is not None else []
            removed_lines = [number for number, key in enumerate(line_keys) if key in frequent]
            writer.add_document(
                row, removal_spans(row["text"], removed_lines, "frequent") if removed_lines else [], len(removed_lines)
            )
            progress.add()
    writer.fill_manifest(manifest, "lines")
    return writer.files


main = Program("boilerplate.score", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
