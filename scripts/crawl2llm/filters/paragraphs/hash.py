"""Hash the paragraphs of every document: of a shard, a row for each different one, with its first place there.

Documents of sources that skip this filter take no part; those of curated sources come first and stay as they are. Memory: 2 million
paragraphs, about 360 MB, whatever the shard.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.document_numbers import first_of
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import UNIT, merged, rank, units
from crawl2llm.formats.hash_shuffle import Dealer, Hashes
from crawl2llm.text.blocks import blocks


def hashes(text: str, by: str, bytes_min: int) -> tuple[Hashes, np.ndarray]:
    """(hash of every paragraph that is compared, its number among all), (paragraphs,) each. See the keys of `paragraphs.hash`."""
    found = [(number, block) for number, block in enumerate(blocks(text, by)) if len(block) >= max(1, bytes_min)]
    at = np.array([number for number, _ in found], np.int64)
    return np.array([xxhash.xxh3_64_intdigest(block) for _, block in found], np.uint64), at


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shard = shard_of(args.documents)
    out = args.manifest.with_name(f"{shard}.parquet")
    progress = Progress(surviving_texts.number(args.documents, args.verdicts), "documents")
    document, paragraphs = first_of(int(shard)), 0
    with Dealer(out, UNIT, merged) as dealer:
        for row in surviving_texts.texts(args.documents, args.verdicts, args.edits, ["source", "curated"]):
            if row["source"] not in settings["skipped_by"]:
                found, at = hashes(row["text"], settings["by"], settings["bytes_min"])
                dealer.add(units(found, rank(row["id"], row["curated"]), document, at))
                paragraphs += len(at)
            document += 1
            progress.add()
    manifest.counts = {"in": progress.done, "kept": progress.done, "dropped": {}}
    manifest.summary = {"paragraphs": paragraphs, "by": settings["by"], "bytes_min": settings["bytes_min"]}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "paragraphs.hash",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE} --manifest /tmp/hash/00000.manifest.json",
    )
    surviving_texts.options(parser)
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
