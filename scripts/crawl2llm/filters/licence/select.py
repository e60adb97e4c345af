"""Keep the documents that are under an allowed licence; those of curated sources and of sources that skip this filter stay.

Rules: `unknown` (no licence is known), `licence` (one that is not allowed) and `said` (not said in an allowed way), which compare no
number, and `beside` (more other licences are named than `beside_max`).
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.licence.names import is_allowed
from crawl2llm.formats.documents import select_shard
from crawl2llm.formats.verdicts import FailedRule, verdict_row


def judge_document(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one signals row. settings: `licence.select`."""
    name, beside_max = row["licence"], settings["beside_max"]
    failed = []
    if name is None:
        if settings["unknown"] == "drop":
            failed.append(FailedRule("unknown", detail="no licence is known"))
        return verdict_row(row["id"], failed, stays=row["curated"])
    if not is_allowed(name, settings["allowed"]):
        failed.append(FailedRule("licence", detail=name))
    if row["said"] not in settings["said"]:
        failed.append(FailedRule("said", detail=row["said"]))
    if beside_max is not None and row["beside"] > beside_max:
        failed.append(FailedRule("beside", row["beside"], beside_max))
    return verdict_row(row["id"], failed, stays=row["curated"])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judge_row = partial(judge_document, settings=settings)
    return select_shard(args.signals, judge_row, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "licence.select",
        __doc__,
        "--config config.yaml --signals results/main/licence/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same licence.score shard")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
