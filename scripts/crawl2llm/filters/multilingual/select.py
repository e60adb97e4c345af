"""Drop the documents that are too much in other languages, or of which nothing is left; those of curated sources and of sources that
skip this filter stay.

Rules: `characters_min` (fewer are left) and `foreign_max`.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import select_shard
from crawl2llm.formats.verdicts import FailedRule, verdict_row


def judge_document(row: dict[str, Any], characters_min: int, foreign_max: float | None) -> dict[str, Any]:
    """The verdict on one signals row."""
    failed = []
    if row["characters"] < characters_min:
        failed.append(FailedRule("characters_min", row["characters"], characters_min))
    if foreign_max is not None and row["foreign"] > foreign_max:
        failed.append(FailedRule("foreign_max", row["foreign"], foreign_max))
    return verdict_row(row["id"], failed, stays=row["curated"])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judge_row = partial(judge_document, characters_min=settings["characters_min"], foreign_max=settings["foreign_max"])
    return select_shard(args.signals, judge_row, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "multilingual.select",
        __doc__,
        "--config config.yaml --signals results/main/multilingual/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same multilingual.score shard")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
