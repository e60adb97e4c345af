"""Find the repeated paragraphs, over all shards: those whose hash is in this part; and where each of them stays.

Method `exact`: sorted, 2 million at a time, about 400 MB of memory; disk is 48 bytes for each different paragraph of a shard. Method
`bloom`: filters/paragraphs/bloom.py.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from crawl2llm.chain import command_line
from crawl2llm.chain.step_program import Program
from crawl2llm.chain.steps import number_of_parts
from crawl2llm.core.manifest import Manifest, scratch_folder
from crawl2llm.filters.paragraphs import bloom
from crawl2llm.filters.paragraphs.settings import RepeatedSettings
from crawl2llm.formats.documents import shard_of
from crawl2llm.formats.first_occurrence import UNIT, report_repeats
from crawl2llm.formats.hash_shuffle import Answers, pieces_of_part, rows_of_part


def body(args: argparse.Namespace, settings: RepeatedSettings, manifest: Manifest) -> list[Path]:
    part, parts = shard_of(args.manifest), number_of_parts(len(args.hashes))
    out = args.manifest.with_name(f"{part}.parquet")
    with scratch_folder(args.manifest.with_name(f".{part}")) as folder:
        answers = Answers(folder / "answers", args.hashes)
        if settings.method == "bloom":
            if settings.keep != "first":
                raise command_line.InputError(
                    f"paragraphs.repeated.keep is {settings.keep!r}, and method bloom keeps the first: it knows of no copy that comes "
                    "later. Set keep: first, or method: exact"
                )
            shards = partial(rows_of_part, args.hashes, int(part), parts, UNIT)
            answered_units, filter_bytes, number = bloom.answer_shards(
                shards, settings.false_positive_rate, settings.seed, answers
            )
            manifest.summary = {"different": number, "told": answered_units, "filter_bytes": filter_bytes}
        else:
            repeated = places = 0
            for shard, rows in pieces_of_part(args.hashes, int(part), parts, UNIT, folder / "rows"):
                part_repeated, part_places = report_repeats(shard, rows, settings.keep, answers)
                repeated, places = repeated + part_repeated, places + part_places
            manifest.summary = {"repeated": repeated, "places": places}
        answers.write(out)
    return [out]


main = Program("paragraphs.repeated", __doc__, RepeatedSettings, body)


if __name__ == "__main__":
    raise SystemExit(main())
