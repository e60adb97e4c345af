"""Drop the documents of which too little is left; those of curated sources and of sources that skip this filter stay.

Rules: `characters_min` (nothing is left), `sentences_min` and `flagged_max`.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line, config_schema
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import select_shard
from crawl2llm.formats.verdicts import FailedRule, verdict_row


def judge_document(row: dict[str, Any], sentences_min: int, flagged_max: float | None = None) -> dict[str, Any]:
    """The verdict on one signals row."""
    minimums = {"characters": 1, "sentences": sentences_min}
    failed = [FailedRule(f"{name}_min", row[name], number) for name, number in minimums.items() if row[name] < number]
    if flagged_max is not None and row["flagged"] > flagged_max:
        failed.append(FailedRule("flagged_max", row["flagged"], flagged_max))
    return verdict_row(row["id"], failed, stays=row["curated"])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    settings = config_schema.fill_defaults("lines.select", settings)
    judge_row = partial(judge_document, sentences_min=settings["sentences_min"], flagged_max=settings["flagged_max"])
    return select_shard(args.signals, judge_row, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "lines.select",
        __doc__,
        "--config config.yaml --signals results/main/lines/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same lines.score shard")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
