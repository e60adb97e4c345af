"""Find the repeated windows of words, over all shards: those whose hash is in this part; and where each stays.

Memory: 2 million windows, about 400 MB, whatever the corpus; disk is 48 bytes for each different window of a shard whose
fingerprint is repeated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crawl2llm.chain.step_program import Program
from crawl2llm.chain.steps import number_of_parts
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.substrings.settings import RepeatedSettings
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import UNIT, report_repeats
from crawl2llm.formats.hash_shuffle import Answers, pieces_of_part


def body(args: argparse.Namespace, settings: RepeatedSettings, manifest: Manifest) -> list[Path]:
    part, parts = shard_of(args.manifest), number_of_parts(len(args.windows))
    out = args.manifest.with_name(f"{part}.parquet")
    repeated = places = 0
    with scratch_folder(args.manifest.with_name(f".{part}")) as folder:
        answers = Answers(folder / "answers", args.windows)
        for shard, rows in pieces_of_part(args.windows, int(part), parts, UNIT, folder / "rows"):
            part_repeated, part_places = report_repeats(shard, rows, settings.keep, answers)
            repeated, places = repeated + part_repeated, places + part_places
        answers.write(out)
    manifest.summary = {"repeated": repeated, "places": places}
    return [out]


main = Program("substrings.repeated", __doc__, RepeatedSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
