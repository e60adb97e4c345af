"""The token files under the names that nanotron and datatrove read: links, and an index of where documents end. No step runs this.

nanotron's `.ds` is the same bytes as Megatron's `.bin`. For each of them this makes `<to>/<split>/<source>/<shard>.ds`, a
hard link (a copy on another file system), and `<shard>.ds.index`, the number of tokens up to the end of each document as
uint64 (datatrove's TokenizedFile, src/datatrove/pipeline/tokens/tokenizer.py). The folder of a source is one of nanotron's
`dataset_folder`.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from crawl2llm.chain.command_line import command_parser
from crawl2llm.core.console import print_line
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import batches


def link_datasets(manifests: Iterable[Path], to: Path) -> int:
    """Link the datasets of these manifests of tokenize.encode below `to`; returns how many there are."""
    number = 0
    for path in sorted(manifests):
        manifest = Manifest.read(path)
        for name in sorted(name for name in manifest.files if name.endswith(".bin")):
            stem = name.removesuffix(".bin")
            file = to / f"{stem}.ds"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            try:
                os.link(manifest.file(name), file)
            except OSError:
                shutil.copyfile(manifest.file(name), file)
            sizes = [
                batch.column("tokens").to_numpy()
                for batch in batches(manifest.file(f"{stem}.docs.parquet"), ["tokens"])
            ]
            np.cumsum(np.concatenate(sizes)).astype("<u8").tofile(f"{file}.index")
            number += 1
    return number


def main(argv: list[str] | None = None) -> int:
    parser = command_parser(
        "python -m crawl2llm.stages.tokenize.nanotron",
        __doc__,
        "--tokens results/main/tokenize/encode/*.manifest.json --to /data/nanotron",
    )
    parser.add_argument("--tokens", required=True, type=Path, nargs="+", help="manifests of tokenize.encode")
    parser.add_argument("--to", required=True, type=Path, help="the folder to write")
    args: argparse.Namespace = parser.parse_args(argv)
    print_line(f"{link_datasets(args.tokens, args.to)} datasets in {args.to}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
