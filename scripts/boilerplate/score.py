"""Take the lines that are frequent within their host out of every document, and measure what is left.

Writes `spans/<shard>.parquet` (scripts/formats/spans.py) and the signals of scripts/formats/left.py. Memory: the frequent lines of one
shard's hosts, about 50 bytes each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from scripts.boilerplate import keys
from scripts.boilerplate.count import takes_part
from scripts.formats import filtered
from scripts.formats.blocks import taken_out
from scripts.formats.dealt import answers
from scripts.formats.documents import shard_of
from scripts.formats.left import Scored
from scripts.workflow import cli
from scripts.workflow.console import Progress
from scripts.workflow.manifest import Manifest


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    frequent = set(answers(args.frequent, int(shard_of(args.documents)))["hash"].tolist())
    progress = Progress(filtered.number(args.documents, args.verdicts), "documents")
    columns = ["source", "curated", "url"]
    with Scored(args.manifest) as scored:
        for row in filtered.texts(args.documents, args.verdicts, args.edits, columns, originals=True):
            host = takes_part(row, settings["skipped_by"]) if frequent else None
            found = keys.keys(row["text"], host) if host is not None else []
            gone = [number for number, key in enumerate(found) if key in frequent]
            scored.add(row, taken_out(row["text"], gone, "frequent") if gone else [], len(gone))
            progress.add()
    scored.fill(manifest, "lines")
    return scored.files


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "boilerplate.score",
        __doc__,
        f"--config config.yaml {filtered.EXAMPLE} --frequent results/main/boilerplate/frequent/*.manifest.json"
        " --manifest /tmp/score/00000.manifest.json",
    )
    filtered.options(parser)
    parser.add_argument("--frequent", required=True, type=Path, nargs="+", help="manifests of boilerplate.frequent")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
