"""Keep the documents whose best language is wanted and scored high enough.

Rules: `repeated_record` (a copy that ingest.check found; `detail` names the file where the record stays), `language` (another language: no number is compared, `detail` names the language found) and `score` (below
`threshold`). The default threshold 0.65 is FineWeb's (datatrove, src/datatrove/pipeline/filters/language_filter.py).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from scripts.common import cli
from scripts.common.documents import data, rows, select, shard_of
from scripts.common.manifest import Manifest


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
    shards = [(shard_of(path), data(path)) for path in args.signals]
    copies = Manifest.read(args.check).file("repeated.parquet") if args.check else None
    repeated = {(row["shard"], row["id"]): row["kept_file"] for row in rows(copies)} if copies else {}
    files, manifest.counts, by_shard = select(
        shards, args.manifest.parent, lambda row: judge(row, languages, threshold), repeated
    )
    histogram: dict[str, int] = {}
    for _, path in shards:
        for row in rows(path, ["language"]):
            histogram[row["language"]] = histogram.get(row["language"], 0) + 1
    manifest.summary = {
        "by_shard": by_shard,
        "languages": histogram,
        "wanted": {"languages": settings["languages"], "threshold": threshold},
    }
    return files


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "language.select",
        __doc__,
        "--config config.yaml --signals results/main/language/score/*.manifest.json --manifest /tmp/select/manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, nargs="+", help="manifests of language.score")
    parser.add_argument(
        "--check", type=Path, help="manifest of ingest.check; without, nothing is known of repeated records"
    )
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
