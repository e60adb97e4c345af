"""Find the repeated n-grams of the sample, over all shards: those whose hash is in this part.

Memory: 2 million n-grams, about 360 MB, whatever the corpus; disk is 24 bytes for each different one of a shard.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from crawl2llm.chain.step_program import Program
from crawl2llm.chain.steps import number_of_parts
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.substrings.sample import FINGERPRINT
from crawl2llm.filters.substrings.settings import SharedSettings
from crawl2llm.formats.document_numbers import group_starts
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.hash_shuffle import Answers, pieces_of_part


def body(args: argparse.Namespace, settings: SharedSettings, manifest: Manifest) -> list[Path]:
    part, parts = shard_of(args.manifest), number_of_parts(len(args.samples))
    out = args.manifest.with_name(f"{part}.parquet")
    different = repeated = 0
    with scratch_folder(args.manifest.with_name(f".{part}")) as folder:
        answers = Answers(folder / "answers", args.samples)
        for shard, rows in pieces_of_part(args.samples, int(part), parts, FINGERPRINT, folder / "rows"):
            order = np.argsort(rows["hash"], kind="stable")
            shard, rows = shard[order], rows[order]
            first = group_starts(rows["hash"])
            if len(rows):
                total = np.add.reduceat(rows["count"], np.flatnonzero(first))
                several = (total > 1)[np.cumsum(first) - 1]
                answers.add(shard[several], rows["hash"][several])
                different, repeated = different + len(total), repeated + int((total > 1).sum())
        answers.write(out)
    manifest.summary = {"marks": different, "repeated": repeated}
    return [out]


main = Program("substrings.shared", __doc__, SharedSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
