"""Drop the documents whose URL is on a block list, but those of curated sources and of sources that skip this filter.

Rules: `domain`, `address` and `expression` (no number is compared, `detail` names the entry) and `words` (more listed words than
`words_max`). Such a document stays in any case; its verdict still lists the rules that it fails.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from scripts.formats.documents import select_shard
from scripts.workflow import cli
from scripts.workflow.manifest import Manifest

ENTRIES = ("domain", "address", "expression")


def judge(row: dict[str, Any], words_max: int | None) -> dict[str, Any]:
    """The verdict on one signals row. words_max None: words do not count."""
    failed = [rule for rule in ENTRIES if row[rule] is not None]
    failed += ["words"] if words_max is not None and row["words"] > words_max else []
    rule = failed[0] if failed and not row["curated"] else None
    return {
        "id": row["id"],
        "kept": rule is None,
        "rule": rule,
        "value": row["words"] if rule == "words" else None,
        "threshold": words_max if rule == "words" else None,
        "detail": row[rule] if rule in ENTRIES else None,
        "rules": failed,
    }


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judged = partial(judge, words_max=settings["words_max"])
    return select_shard(args.signals, judged, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "url.select",
        __doc__,
        "--config config.yaml --signals results/main/url/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same url.score shard")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
