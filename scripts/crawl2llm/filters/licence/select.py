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
from crawl2llm.filters.licence.names import allowed
from crawl2llm.formats.documents import select_shard
from crawl2llm.formats.verdicts import Failed, verdict


def judge(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one signals row. settings: `licence.select`."""
    name, most = row["licence"], settings["beside_max"]
    failed = []
    if name is None:
        if settings["unknown"] == "drop":
            failed.append(Failed("unknown", detail="no licence is known"))
        return verdict(row["id"], failed, stays=row["curated"])
    if not allowed(name, settings["allowed"]):
        failed.append(Failed("licence", detail=name))
    if row["said"] not in settings["said"]:
        failed.append(Failed("said", detail=row["said"]))
    if most is not None and row["beside"] > most:
        failed.append(Failed("beside", row["beside"], most))
    return verdict(row["id"], failed, stays=row["curated"])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judged = partial(judge, settings=settings)
    return select_shard(args.signals, judged, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "licence.select",
        __doc__,
        "--config config.yaml --signals results/main/licence/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same licence.score shard")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
