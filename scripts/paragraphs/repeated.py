"""Find the paragraphs that are there twice or more, over all shards: those whose hash is in this part; and where each of them stays.

Method `exact`: sorted, 2 million at a time, about 400 MB of memory; disk is 48 bytes for each different paragraph of a shard. Method
`bloom`: scripts/paragraphs/bloom.py.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from scripts.formats.dealt import Answers, of_part, pieces
from scripts.formats.documents import shard_of
from scripts.formats.firsts import UNIT, decide
from scripts.paragraphs import bloom
from scripts.workflow import cli
from scripts.workflow.manifest import Manifest, scratch
from scripts.workflow.steps import number_of_parts


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    part, parts = shard_of(args.manifest), number_of_parts(len(args.hashes))
    out = args.manifest.with_name(f"{part}.parquet")
    with scratch(args.manifest.with_name(f".{part}")) as folder:
        answers = Answers(folder / "answers", args.hashes)
        if settings["method"] == "bloom":
            if settings["keep"] != "first":
                raise cli.InputError(
                    f"paragraphs.repeated.keep is {settings['keep']!r}, and method bloom keeps the first: it knows of no copy that comes "
                    "later. Set keep: first, or method: exact"
                )
            shards = partial(of_part, args.hashes, int(part), parts, UNIT)
            told, held, number = bloom.decide(shards, settings["false_positive_rate"], settings["seed"], answers)
            manifest.summary = {"different": number, "told": told, "filter_bytes": held}
        else:
            repeated = places = 0
            for shard, rows in pieces(args.hashes, int(part), parts, UNIT, folder / "rows"):
                one, other = decide(shard, rows, settings["keep"], answers)
                repeated, places = repeated + one, places + other
            manifest.summary = {"repeated": repeated, "places": places}
        answers.write(out)
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "paragraphs.repeated",
        __doc__,
        "--config config.yaml --hashes results/main/paragraphs/hash/*.manifest.json --manifest /tmp/repeated/000.manifest.json",
    )
    parser.add_argument("--hashes", required=True, type=Path, nargs="+", help="manifests of paragraphs.hash")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
