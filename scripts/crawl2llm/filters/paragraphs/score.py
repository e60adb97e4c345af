"""Take the paragraphs that are repeated out of every document, but where the first of each stands, and measure what is left.

Writes `spans/<shard>.parquet` (formats/spans.py) and the signals of filters/edit_filter.py. Memory: the repeated paragraphs
of one shard, 44 bytes each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.edit_filter import Scored
from crawl2llm.filters.paragraphs.hash import hashes
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.document_numbers import first_of
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import stay
from crawl2llm.formats.hash_shuffle import Table, answers
from crawl2llm.text.blocks import taken_out


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shard = int(shard_of(args.documents))
    repeated = Table(answers(args.repeated, shard))
    made = Manifest.read(args.hashes)
    by, bytes_min = made.part("by"), made.part("bytes_min")
    progress = Progress(surviving_texts.number(args.documents, args.verdicts), "documents")
    document = first_of(shard)
    with Scored(args.manifest) as scored:
        for row in surviving_texts.texts(
            args.documents, args.verdicts, args.edits, ["source", "curated"], originals=True
        ):
            gone: list[int] = []
            if not row["curated"] and row["source"] not in settings["skipped_by"] and len(repeated.rows):
                found, at = hashes(row["text"], by, bytes_min)
                here, which = repeated.find(found)
                goes = ~stay(repeated.rows[which], document, at[here])
                gone = at[here][goes].tolist()
            scored.add(row, taken_out(row["text"], gone, "repeated", by) if gone else [], len(gone))
            document += 1
            progress.add()
    scored.fill(manifest, "paragraphs")
    return scored.files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "paragraphs.score",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE} --hashes results/main/paragraphs/hash/00000.manifest.json"
        " --repeated results/main/paragraphs/repeated/*.manifest.json --manifest /tmp/score/00000.manifest.json",
    )
    surviving_texts.options(parser)
    parser.add_argument("--hashes", required=True, type=Path, help="manifest of the same paragraphs.hash shard")
    parser.add_argument("--repeated", required=True, type=Path, nargs="+", help="manifests of paragraphs.repeated")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
