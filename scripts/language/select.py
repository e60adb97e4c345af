"""Keep the documents whose best language is wanted and scored high enough, and those of sources that skip this filter.

Rules: `language` (another language: no number is compared, `detail` names the language found) and `score` (below `threshold`). The
default threshold 0.65 is FineWeb's (datatrove, src/datatrove/pipeline/filters/language_filter.py).
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from scripts.formats.documents import data, rows, select_shard
from scripts.workflow import cli
from scripts.workflow.manifest import Manifest


def judge(row: dict[str, Any], languages: frozenset[str], threshold: float) -> dict[str, Any]:
    """The verdict on one signals row. An empty `languages` keeps every language."""
    failed = []
    if languages and row["language"] not in languages:
        failed.append("language")
    if row["score"] < threshold:
        failed.append("score")
    rule = failed[0] if failed else None
    return {
        "id": row["id"],
        "kept": not failed,
        "rule": rule,
        "value": row["score"] if rule == "score" else None,
        "threshold": threshold if rule == "score" else None,
        "detail": row["language"] if rule == "language" else None,
        "rules": failed,
    }


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    languages, threshold = frozenset(settings["languages"]), settings["threshold"]
    judged = partial(judge, languages=languages, threshold=threshold)
    files = select_shard(args.signals, judged, manifest, args.manifest, settings["skipped_by"])
    histogram: dict[str, int] = {}
    for row in rows(data(args.signals), ["language"]):
        histogram[row["language"]] = histogram.get(row["language"], 0) + 1
    manifest.summary |= {
        "languages": histogram,
        "wanted": {"languages": settings["languages"], "threshold": threshold},
    }
    return files


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "language.select",
        __doc__,
        "--config config.yaml --signals results/main/language/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same language.score shard")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
