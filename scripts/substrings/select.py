"""Drop the documents of which too little is left after the passages that others have too; those of curated sources stay.

Rules: `characters_min` (nothing is left), `words_min` and `removed_max`. Documents that nothing was taken out of stay.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from scripts.formats.documents import select_shard
from scripts.formats.left import judge
from scripts.workflow import cli
from scripts.workflow.manifest import Manifest


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judged = partial(judge, words_min=settings["words_min"], removed_max=settings["removed_max"])
    return select_shard(args.signals, judged, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "substrings.select",
        __doc__,
        "--config config.yaml --signals results/main/substrings/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same substrings.score shard")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
