"""Replace personal data by placeholders, and drop the documents that have too much of it.

Writes `spans/<shard>.parquet` (formats/spans.py), which later filters read through and corpus.write applies. Rules: the kinds whose
action is `drop`, from `drop_from` finds on, and `total_max`. Texts of curated sources are masked too, and their documents stay; a source
that skips this filter keeps its texts as they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.framework import select
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.pii.masks import action_for, placeholder_for, rules
from crawl2llm.filters.pii.settings import SelectSettings
from crawl2llm.formats import spans
from crawl2llm.formats.documents import Writer, rows, shard_of


class Task(SelectSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    spans_file, masked_counts = spans.file_of(args.manifest), dict[str, int]()
    signals = Manifest.read(args.signals)
    all_findings: Iterator[dict[str, Any]] = rows(signals.file(f"found/{shard_of(args.signals)}.parquet"))
    with Writer(spans_file, spans.SCHEMA) as writer:

        def mask_document(row: dict[str, Any], row_verdict: dict[str, Any]) -> None:
            """The finds lie in the signals' order, so that those of a document are the next."""
            findings = list(islice(all_findings, sum(row[kind] for kind in KINDS)))
            if not row_verdict["kept"] or row["source"] in settings.skipped_by:
                return
            for finding in findings:
                if action_for(finding["kind"], settings) != "keep":
                    replacement = placeholder_for(finding["kind"], settings)
                    place = {key: finding[key] for key in ("id", "start", "end")}
                    writer.add({**place, "replacement": replacement, "rule": finding["kind"]})
                    masked_counts[finding["kind"]] = masked_counts.get(finding["kind"], 0) + 1

        files = select.judge_shard(args, settings, manifest, rules(settings), count=mask_document)
    manifest.summary["masked"] = dict(sorted(masked_counts.items()))
    return [*files, spans_file]


main = Program("pii.select", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
