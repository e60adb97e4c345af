"""Count on how many documents of its host each line is: those of a shard, as hashes, by the host's hash.

Documents of curated sources, of sources that skip this filter, and those without a host, such as books, take no part. Memory: 2 million
lines, about 240 MB, whatever the shard.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.boilerplate import keys
from crawl2llm.filters.boilerplate.settings import CountSettings
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.hash_shuffle import Dealer


def participating_host(row: dict[str, Any], skipped_by: list[str]) -> int | None:
    """The hash of a document's host; None if its lines are neither counted nor taken out."""
    return None if row["curated"] or row["source"] in skipped_by else keys.hash_of_host(row["url"])


class Task(CountSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    out = args.manifest.with_name(f"{shard_of(args.documents)}.parquet")
    progress = Progress(surviving_texts.count_documents(args.documents, args.verdicts), "documents")
    counted_documents = 0
    with Dealer(out, keys.LINE, keys.merge_counts) as dealer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated", "url"]):
            if (host := participating_host(row, settings.skipped_by)) is not None:
                dealer.add(keys.line_rows(row["text"], host))
                counted_documents += 1
            progress.add()
    manifest.count_all_kept(progress.done)
    manifest.summary = {"counted": counted_documents, "rows": dealer.rows}
    return [out]


main = Program("boilerplate.count", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
