"""Drop the documents whose URL is on a block list, but those of curated sources and of sources that skip this filter.

Rules: `domain`, `address` and `expression` (no number is compared, `detail` names the entry) and `words` (more listed words than
`words_max`). Such a document stays in any case; its verdict still lists the rules that it fails.
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

ENTRIES = ("domain", "address", "expression")


def judge_document(row: dict[str, Any], words_max: int | None) -> dict[str, Any]:
    """The verdict on one signals row. words_max None: words do not count."""
    failed = [FailedRule(rule, detail=row[rule]) for rule in ENTRIES if row[rule] is not None]
    if words_max is not None and row["words"] > words_max:
        failed.append(FailedRule("words", row["words"], words_max))
    return verdict_row(row["id"], failed, stays=row["curated"])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judge_row = partial(judge_document, words_max=settings["words_max"])
    return select_shard(args.signals, judge_row, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "url.select",
        __doc__,
        "--config config.yaml --signals results/main/url/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same url.score shard")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
