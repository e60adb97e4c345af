"""Drop the documents of which too little is left; those of curated sources and of sources that skip this filter stay.

Rules: `characters_min` (nothing is left) and `sentences_min`.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from scripts.formats.documents import select_shard
from scripts.workflow import cli
from scripts.workflow.manifest import Manifest


def judge(row: dict[str, Any], sentences_min: int) -> dict[str, Any]:
    """The verdict on one signals row."""
    least = {"characters": 1, "sentences": sentences_min}
    failed = [name for name, number in least.items() if row[name] < number]
    first = failed[0] if failed and not row["curated"] else None
    return {
        "id": row["id"],
        "kept": first is None,
        "rule": f"{first}_min" if first else None,
        "value": row[first] if first else None,
        "threshold": least[first] if first else None,
        "rules": [f"{name}_min" for name in failed],
    }


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judged = partial(judge, sentences_min=settings["sentences_min"])
    return select_shard(args.signals, judged, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "lines.select",
        __doc__,
        "--config config.yaml --signals results/main/lines/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same lines.score shard")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
