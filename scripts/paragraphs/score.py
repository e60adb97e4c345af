"""Take the paragraphs that are repeated out of every document, but where the first of each stands, and measure what is left.

Writes `spans/<shard>.parquet` (scripts/formats/spans.py) and the signals of scripts/formats/left.py. Memory: the repeated paragraphs
of one shard, 44 bytes each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from scripts.dedup.tables import first_of
from scripts.formats import filtered
from scripts.formats.blocks import taken_out
from scripts.formats.dealt import Table, answers
from scripts.formats.documents import shard_of
from scripts.formats.firsts import stay
from scripts.formats.left import Scored
from scripts.paragraphs.hash import hashes
from scripts.workflow import cli
from scripts.workflow.console import Progress
from scripts.workflow.manifest import Manifest


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shard = int(shard_of(args.documents))
    repeated = Table(answers(args.repeated, shard))
    made = Manifest.read(args.hashes)
    by, bytes_min = made.part("by"), made.part("bytes_min")
    progress = Progress(filtered.number(args.documents, args.verdicts), "documents")
    document = first_of(shard)
    with Scored(args.manifest) as scored:
        for row in filtered.texts(args.documents, args.verdicts, args.edits, ["source", "curated"], originals=True):
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
    parser = cli.parser(
        "paragraphs.score",
        __doc__,
        f"--config config.yaml {filtered.EXAMPLE} --hashes results/main/paragraphs/hash/00000.manifest.json"
        " --repeated results/main/paragraphs/repeated/*.manifest.json --manifest /tmp/score/00000.manifest.json",
    )
    filtered.options(parser)
    parser.add_argument("--hashes", required=True, type=Path, help="manifest of the same paragraphs.hash shard")
    parser.add_argument("--repeated", required=True, type=Path, nargs="+", help="manifests of paragraphs.repeated")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
