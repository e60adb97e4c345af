"""Drop the documents with an item of an evaluation set in them, or cut the item out; those of sources that skip this filter stay.

An item counts as found where its overlap is above `overlap_max`. Rules: `overlap_max`, and with `action: cut` `cut_max`, of a document of
which too much would be cut. Writes verdicts, `spans/<shard>.parquet`, what is cut, and `found/<shard>.parquet`, the items that were found
and what became of them (`fate`: dropped, cut, or left in a document whose source skips this filter).
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.decontaminate import cuts
from crawl2llm.filters.decontaminate.score import MATCH_SCHEMA
from crawl2llm.filters.decontaminate.settings import SelectSettings
from crawl2llm.formats import spans
from crawl2llm.formats.documents import Writer, by_row, rows, select_shard, shard_of, sidecar_file

FOUND_SCHEMA = MATCH_SCHEMA.append(pa.field("fate", pa.string()))


class Task(SelectSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    signals = Manifest.read(args.signals)
    overlap_max = cuts.overlap_limit(settings.overlap_max, signals.summary["method"])
    action, cut_max = settings.action, settings.cut_max
    matches_by_document: dict[str, list[dict[str, Any]]] = {}  # matches by document: those of a shard
    for row in rows(signals.file(f"matches/{shard_of(args.signals)}.parquet")):
        if row["overlap"] > overlap_max:
            matches_by_document.setdefault(row["id"], []).append(row)
    fates: dict[str, str] = {}

    def judge_row(row: dict[str, Any]) -> dict[str, Any]:
        places = [
            (item_match["searched_start"], item_match["searched_end"])
            for item_match in matches_by_document.get(row["id"], [])
        ]
        return cuts.judge_document(
            {**row, "cut": cuts.covered_share(places, row["characters"])}, overlap_max, action, cut_max
        )

    def record_fate(row: dict[str, Any], verdict: dict[str, Any]) -> None:
        if row["id"] in matches_by_document:
            fates[row["id"]] = "cut" if verdict["kept"] else "dropped"
            if row["source"] in settings.skipped_by:
                fates[row["id"]] = "left"

    files = select_shard(args.signals, by_row(judge_row), manifest, args.manifest, settings.skipped_by, record_fate)
    places, found_file = spans.file_of(args.manifest), sidecar_file(args.manifest, "found")
    counts_by_set: dict[str, dict[str, int]] = {}
    with Writer(places, spans.SCHEMA) as writer, Writer(found_file, FOUND_SCHEMA) as items:
        for name, matches in matches_by_document.items():
            for item_match in matches:
                items.add({**item_match, "fate": fates[name]})
            for key, number in Counter(item_match["set"] for item_match in matches).items():
                counts = counts_by_set.setdefault(key, {"documents": 0, "matches": 0})
                counts["documents"] += 1
                counts["matches"] += number
            if fates[name] == "cut":
                for start, end in cuts.merge_spans((item_match["start"], item_match["end"]) for item_match in matches):
                    writer.add({"id": name, "start": start, "end": end, "replacement": "", "rule": cuts.OVERLAP_RULE})
    number_by_fate = Counter(fates.values())
    count = {fate: number_by_fate[fate] for fate in ("dropped", "cut", "left")}
    manifest.summary |= {
        "overlap_max": overlap_max,
        "action": action,
        "sets": dict(sorted(counts_by_set.items())),
        "fates": count,
    }
    return [*files, places, found_file]


main = Program("decontaminate.select", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
