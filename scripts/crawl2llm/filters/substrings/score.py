"""Take the passages that are repeated out of every document, but where the first of each stands, and measure what is left.

A word goes where a window of words around it is repeated and does not stay. Writes `spans/<shard>.parquet` (formats/spans.py) and
the signals of filters/edit_filter.py. Memory: the repeated windows of one shard, 44 bytes each, and a batch of texts.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl2llm.chain import command_line
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.edit_filter import Scored
from crawl2llm.filters.substrings.fingerprints import of_shard, where
from crawl2llm.filters.substrings.words import Batch, grams, places
from crawl2llm.formats import surviving_texts
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import stay
from crawl2llm.formats.hash_shuffle import Table, answers
from crawl2llm.formats.spans import Span
from crawl2llm.text.blocks import around


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
    progress = Progress(surviving_texts.number(args.documents, args.verdicts), "documents")
    with Scored(args.manifest) as scored:
        for batch in of_shard(args, settings["skipped_by"], progress, originals=True):
            gone = going(batch, repeated, length)
            for row, start, end in zip(batch.rows, batch.starts().tolist(), batch.ends.tolist(), strict=True):
                scored.add(row, spans(row["text"], gone[start:end]), int(gone[start:end].sum()))
    scored.fill(manifest, "words")
    return scored.files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "substrings.score",
        __doc__,
        f"--config config.yaml {surviving_texts.EXAMPLE} --sample results/main/substrings/sample/00000.manifest.json"
        " --repeated results/main/substrings/repeated/*.manifest.json --manifest /tmp/score/00000.manifest.json",
    )
    surviving_texts.options(parser)
    parser.add_argument("--sample", required=True, type=Path, help="manifest of the same substrings.sample shard")
    parser.add_argument("--repeated", required=True, type=Path, nargs="+", help="manifests of substrings.repeated")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
