"""Take the passages that are repeated out of every document, but where the first of each stands, and measure what is left.

A word goes where a window of words around it is repeated and does not stay. Writes `spans/<shard>.parquet` (scripts/formats/spans.py) and
the signals of scripts/formats/left.py. Memory: the repeated windows of one shard, 44 bytes each, and a batch of texts.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scripts.formats import filtered
from scripts.formats.blocks import around
from scripts.formats.dealt import Table, answers
from scripts.formats.documents import shard_of
from scripts.formats.firsts import stay
from scripts.formats.left import Scored
from scripts.formats.spans import Span
from scripts.substrings.fingerprints import of_shard, where
from scripts.substrings.words import Batch, grams, places
from scripts.workflow import cli
from scripts.workflow.console import Progress
from scripts.workflow.manifest import Manifest


def going(batch: Batch, repeated: Table, length: int) -> npt.NDArray[np.bool_]:
    """Which words of the batch go, (words,)."""
    out = np.zeros(len(batch.words) + 1, np.int64)
    here, which = repeated.find(grams(batch.words, length))
    whole = batch.whole(length)[here]
    here, which = here[whole], which[whole]
    row, at = where(batch, here)
    documents = np.array([one["document"] for one in batch.rows], np.int64)
    curated = np.array([one["curated"] for one in batch.rows], bool)
    here = here[~stay(repeated.rows[which], documents[row], at) & ~curated[row]]
    np.add.at(out, here, 1)
    np.add.at(out, here + length, -1)
    return np.cumsum(out)[:-1] > 0


def spans(text: str, gone: npt.NDArray[np.bool_]) -> list[Span]:
    """The places of the words that go, one span for those that follow each other. gone: (words,)."""
    if not gone.any():
        return []
    found = places(text)
    edges = np.flatnonzero(np.diff(gone, prepend=False, append=False)).tolist()
    return [
        Span(*around(text, found[first][0], found[last - 1][1]), "", "repeated")
        for first, last in zip(edges[::2], edges[1::2], strict=True)
    ]


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    length = Manifest.read(args.sample).part("length")
    repeated = Table(answers(args.repeated, int(shard_of(args.documents))))
    progress = Progress(filtered.number(args.documents, args.verdicts), "documents")
    with Scored(args.manifest) as scored:
        for batch in of_shard(args, settings["skipped_by"], progress, originals=True):
            gone = going(batch, repeated, length)
            for row, start, end in zip(batch.rows, batch.starts().tolist(), batch.ends.tolist(), strict=True):
                scored.add(row, spans(row["text"], gone[start:end]), int(gone[start:end].sum()))
    scored.fill(manifest, "words")
    return scored.files


def main(argv: list[str] | None = None) -> int:
    parser = cli.parser(
        "substrings.score",
        __doc__,
        f"--config config.yaml {filtered.EXAMPLE} --sample results/main/substrings/sample/00000.manifest.json"
        " --repeated results/main/substrings/repeated/*.manifest.json --manifest /tmp/score/00000.manifest.json",
    )
    filtered.options(parser)
    parser.add_argument("--sample", required=True, type=Path, help="manifest of the same substrings.sample shard")
    parser.add_argument("--repeated", required=True, type=Path, nargs="+", help="manifests of substrings.repeated")
    return cli.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
