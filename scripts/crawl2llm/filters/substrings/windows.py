"""Hash the windows of words that may be there twice: those whose fingerprint is there twice (filters/substrings/fingerprints.py).

Writes, of a shard, a row for each different window with its first place there. Memory: 2 million windows, about 360 MB, and the
repeated fingerprints of the shard, 44 bytes each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.substrings.fingerprints import fingerprints, of_shard, where
from crawl2llm.filters.substrings.words import grams
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import UNIT, merged, units
from crawl2llm.formats.hash_shuffle import Dealer, Table, answers


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    shard = shard_of(args.documents)
    out = args.manifest.with_name(f"{shard}.parquet")
    length = Manifest.read(args.sample).part("length")
    shared = Table(answers(args.shared, int(shard)))
    progress = Progress(surviving_texts.number(args.documents, args.verdicts), "documents")
    number = 0
    with Dealer(out, UNIT, merged) as dealer:
        for batch in of_shard(args, settings["skipped_by"], progress):
            fingerprint, _ = fingerprints(batch, length)
            maybe, _ = shared.find(fingerprint)
            maybe = maybe[batch.whole(length)[maybe]]
            row, at = where(batch, maybe)
            ranks = np.array([one["rank"] for one in batch.rows], np.uint64)
            documents = np.array([one["document"] for one in batch.rows], np.int64)
            dealer.add(units(grams(batch.words, length)[maybe], ranks[row], documents[row], at))
            number += len(maybe)
    manifest.counts = {"in": progress.done, "kept": progress.done, "dropped": {}}
    manifest.summary = {"windows": number}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "substrings.windows",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE} --sample results/main/substrings/sample/00000.manifest.json"
        " --shared results/main/substrings/shared/*.manifest.json --manifest /tmp/windows/00000.manifest.json",
    )
    surviving_texts.options(parser)
    parser.add_argument("--sample", required=True, type=Path, help="manifest of the same substrings.sample shard")
    parser.add_argument("--shared", required=True, type=Path, nargs="+", help="manifests of substrings.shared")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
