"""Take the lines that are frequent within their host out of every document, and measure what is left.

Writes `spans/<shard>.parquet` (formats/spans.py) and the signals of filters/edit_filter.py. Memory: the frequent lines of one
shard's hosts, about 50 bytes each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.boilerplate import keys
from crawl2llm.filters.boilerplate.count import takes_part
from crawl2llm.filters.edit_filter import Scored
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.hash_shuffle import answers
from crawl2llm.text.blocks import taken_out


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    frequent = set(answers(args.frequent, int(shard_of(args.documents)))["hash"].tolist())
    progress = Progress(surviving_texts.number(args.documents, args.verdicts), "documents")
    columns = ["source", "curated", "url"]
    with Scored(args.manifest) as scored:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, columns, originals=True):
            host = takes_part(row, settings["skipped_by"]) if frequent else None
            found = keys.keys(row["text"], host) if host is not None else []
            gone = [number for number, key in enumerate(found) if key in frequent]
            scored.add(row, taken_out(row["text"], gone, "frequent") if gone else [], len(gone))
            progress.add()
    scored.fill(manifest, "lines")
    return scored.files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "boilerplate.score",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE} --frequent results/main/boilerplate/frequent/*.manifest.json"
        " --manifest /tmp/score/00000.manifest.json",
    )
    surviving_texts.options(parser)
    parser.add_argument("--frequent", required=True, type=Path, nargs="+", help="manifests of boilerplate.frequent")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
