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
from crawl2llm.formats.verdicts import Failed, verdict

ENTRIES = ("domain", "address", "expression")


def judge(row: dict[str, Any], words_max: int | None) -> dict[str, Any]:
    """The verdict on one signals row. words_max None: words do not count."""
    failed = [Failed(rule, detail=row[rule]) for rule in ENTRIES if row[rule] is not None]
    if words_max is not None and row["words"] > words_max:
        failed.append(Failed("words", row["words"], words_max))
    return verdict(row["id"], failed, stays=row["curated"])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judged = partial(judge, words_max=settings["words_max"])
    return select_shard(args.signals, judged, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "url.select",
        __doc__,
        "--config config.yaml --signals results/main/url/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same url.score shard")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
