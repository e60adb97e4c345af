"""Replace personal data by placeholders, and drop the documents that have too much of it.

Writes `spans/<shard>.parquet` (formats/spans.py), which later filters read through and corpus.write applies. Rules: the kinds whose
action is `drop`, from `drop_from` finds on, and `total_max`. Texts of curated sources are masked too, and their documents stay; a source
that skips this filter keeps its texts as they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.pii.masks import action, failed, placeholder
from crawl2llm.formats import spans
from crawl2llm.formats.documents import Writer, rows, select_shard, shard_of
from crawl2llm.formats.verdicts import Failed, verdict


def judge(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one signals row. settings: `pii.select`."""
    return verdict(row["id"], [Failed(*one) for one in failed(row, settings)], stays=row["curated"])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    edited, masked = spans.file_of(args.manifest), dict[str, int]()
    signals = Manifest.read(args.signals)
    found: Iterator[dict[str, Any]] = rows(signals.file(f"found/{shard_of(args.signals)}.parquet"))
    with Writer(edited, spans.SCHEMA) as writer:

        def mask(row: dict[str, Any], judged: dict[str, Any]) -> None:
            """The finds lie in the signals' order, so that those of a document are the next."""
            mine = list(islice(found, sum(row[kind] for kind in KINDS)))
            if not judged["kept"] or row["source"] in settings["skipped_by"]:
                return
            for one in mine:
                if action(one["kind"], settings) != "keep":
                    put = placeholder(one["kind"], settings)
                    place = {key: one[key] for key in ("id", "start", "end")}
                    writer.add({**place, "replacement": put, "rule": one["kind"]})
                    masked[one["kind"]] = masked.get(one["kind"], 0) + 1

        judged = partial(judge, settings=settings)
        files = select_shard(args.signals, judged, manifest, args.manifest, settings["skipped_by"], mask)
    manifest.summary["masked"] = dict(sorted(masked.items()))
    return [*files, edited]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "pii.select",
        __doc__,
        "--config config.yaml --signals results/main/pii/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same pii.score shard")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
