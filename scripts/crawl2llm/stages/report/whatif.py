"""Count what other thresholds would keep: of every rule of every select step, at some points, from the scores and verdicts that are there.

Writes `whatif.json`: for each threshold how many documents, bytes of text and tokens its step would keep in all, by source and by
language, with all other rules as they are; which rules drop the same documents; and what is kept now. Bytes are of texts as they were
extracted. Tokens are those of the run's corpus: of a document that was never encoded they are not known, and count as none.
Memory: the ids of one shard and a row group of each table. The tables are read twice: for the points, and for the counts.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crawl2llm.chain import config_schema
from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.step import stage_of
from crawl2llm.chain.step_program import Program
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, scratch_folder, write_atomically
from crawl2llm.core.settings import Settings
from crawl2llm.filters.dedup import settings as dedup
from crawl2llm.filters.framework.rules import Rule
from crawl2llm.filters.quality import settings as quality
from crawl2llm.stages.report import declared_rules
from crawl2llm.stages.report.other_thresholds import shards
from crawl2llm.stages.report.other_thresholds import thresholds as asks
from crawl2llm.stages.report.other_thresholds.counts import Curve, Groups, Table
from crawl2llm.stages.report.other_thresholds.fractions import Fraction
from crawl2llm.stages.report.other_thresholds.overlap import CATEGORIES, Categories, Overlap
from crawl2llm.stages.report.other_thresholds.rows import Rows
from crawl2llm.stages.report.other_thresholds.similar import Similarity
from crawl2llm.stages.report.select_settings import SelectSteps, settings_of
from crawl2llm.stages.report.settings import WhatifSettings

FILE = "whatif.json"


class Step:
    """A select step: its curves, what it keeps, and which of its rules drop together. settings: of the step."""

    def __init__(
        self, step: str, settings: Settings, skipped_by: list[str], tables: shards.Tables, folder: Path
    ) -> None:
        self.step, self.settings, self.skipped_by, self.tables = step, settings, skipped_by, tables
        self.stage = stage_of(step)
        self.signals = [f"{self.stage}.score"]
        if tables.has(f"{self.stage}.combine"):
            self.signals = [f"{self.stage}.combine"]
        if step == "dedup.select":
            self.signals = []
        rules = declared_rules.rules_of(self.stage, settings, tables.manifests_of(declared_rules.CALIBRATE))
        is_measured = {name: tables.has(f"{self.stage}.{name}") for name in declared_rules.measuring_steps(rules)}
        self.signals += [
            f"{self.stage}.{name}" for name, is_there in is_measured.items() if is_there and name != "score"
        ]
        method = ""
        if step == "decontaminate.select":
            method = Manifest.read(tables.manifest(self.signals[0], tables.shards[0])).summary["method"]
        self.curves = [
            Curve(threshold)
            for threshold in asks.thresholds_of_step(
                step, settings, [rule for rule in rules if isinstance(rule, Rule) and is_measured[rule.step]], method
            )
        ]
        if isinstance(settings, quality.SelectSettings) and settings.method == "fraction":
            self.curves.append(Fraction(tables, self.signals[0], settings, skipped_by))
        if isinstance(settings, dedup.SelectSettings) and settings.near:
            self.curves.append(Similarity(tables, settings, folder))
        self.left_out = asks.omitted_keys(step, settings)
        self.overlap = Overlap()
        self.categories = [Categories(*CATEGORIES[step])] if step in CATEGORIES else []

    def rows(self, shard: str, documents: shards.Shard) -> Iterator[tuple[Rows, np.ndarray]]:
        """(rows, their places among the documents) of a shard, a row group at a time."""
        verdicts = self.tables.table(self.step, shard)
        paths = [verdicts, *(self.tables.table(step, shard) for step in self.signals)]
        places, start = documents.row_places(verdicts), 0
        for curve in self.curves:
            if isinstance(curve, Similarity) and len(curve.points):
                curve.open_shard(shard)
        for judged, *measured in shards.aligned_batches(
            paths, [["id", "kept", "rules"], *([None] * len(self.signals))]
        ):
            at = places[start : start + len(judged)]
            start += len(judged)
            skips = [name in self.skipped_by for name in documents.source_names]
            exempt = np.array(skips, bool)[documents.sources[at]]
            if not FILTERS[self.stage].judges_curated:
                exempt = exempt | documents.curated[at]
            yield Rows(measured, documents.labels[at], documents.label_names, judged, exempt), at

    def choose_points(self, number: int, sources: Groups, languages: Groups) -> None:
        """Choose the points of every curve."""
        unmoved = "no document depends on it: none was measured, or other rules decide on all"
        self.leave_out({curve: unmoved for curve in self.curves if not curve.moving})
        for curve in self.curves:
            curve.choose_points(number, self.schema_node(curve), sources, languages)
        self.leave_out({curve: "all documents have the same value" for curve in self.curves if len(curve.points) < 2})
        self.table = Table(sources, languages, 2)

    def leave_out(self, curves: Mapping[Curve, str]) -> None:
        """Take curves out, and note why."""
        self.left_out += [{"key": curve.ask.key, "why": why} for curve, why in curves.items()]
        self.curves = [curve for curve in self.curves if curve not in curves]

    def schema_node(self, curve: Curve) -> dict[str, Any]:
        """The schema of a curve's key."""
        section, _, name = curve.ask.key.rpartition(".")
        schema: dict[str, Any] = config_schema.schema_section(section)["properties"][name]
        return schema

    def add_rows(self, rows: Rows, groups: tuple[np.ndarray, np.ndarray], weights: list[np.ndarray | None]) -> None:
        """Count rows under every curve."""
        self.table.add(groups, weights, rows.kept.astype(np.int64))
        self.overlap.add(rows)
        for categories in self.categories:
            categories.add(rows)
        for curve in self.curves:
            curve.add_rows(rows, groups, weights)

    def as_dict(self) -> dict[str, Any]:
        """What whatif.json says of the step."""
        differ = {
            curve: f"its rule, as the report reads it, is not that of {self.step} for {curve.disagreements} documents"
            for curve in self.curves
            if curve.disagreements
        }
        self.leave_out(differ)
        for curve, why in differ.items():
            log.warning("%s is not shown: %s", curve.ask.key, why)
        return {
            "step": self.step,
            "in": self.table.as_dict(lambda sums: sums.sum(axis=1)),
            "kept": self.table.as_dict(lambda sums: sums[:, 1]),
            "rules": [curve.as_dict(self.schema_node(curve)) for curve in self.curves],
            "categories": [categories.as_dict() for categories in self.categories],
            "overlap": self.overlap.as_dict(),
            "left_out": self.left_out,
        }


class Task(WhatifSettings, SelectSteps):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    tables = shards.Tables(args.manifests)
    with scratch_folder(args.manifest.with_name(".points")) as folder:
        steps = [
            Step(name, settings_of(name, settings), settings.exempt[name], tables, folder) for name in settings.steps
        ]
        sources, languages = Counter[str](), Counter[str]()
        progress = Progress(2 * len(tables.shards), "shards")
        for shard in tables.shards:
            documents = shards.read_shard(tables, shard, sizes=False)
            for counter, names, codes in (
                (sources, documents.source_names, documents.sources),
                (languages, documents.label_names, documents.labels),
            ):
                counts = np.bincount(codes, minlength=len(names)).tolist()
                counter.update({name: number for name, number in zip(names, counts, strict=True) if number})
            for step in steps:
                for rows, _ in step.rows(shard, documents):
                    for curve in step.curves:
                        curve.survey_rows(rows)
            progress.add()
        groups = Groups(sources), Groups(languages)
        for step in steps:
            step.choose_points(settings.points, *groups)
        for shard in tables.shards:
            documents = shards.read_shard(tables, shard, sizes=True)
            by_source = groups[0].codes_of(documents.source_names)[documents.sources]
            by_language = groups[1].codes_of(documents.label_names)[documents.labels]
            for step in steps:
                for rows, at in step.rows(shard, documents):
                    step.add_rows(
                        rows, (by_source[at], by_language[at]), [None, documents.sizes[at], documents.tokens[at]]
                    )
            progress.add()
        result: dict[str, Any] = {
            "sources": groups[0].as_dict(),
            "languages": groups[1].as_dict(),
            "tokens_known": tables.has(shards.ENCODE_STEP),
            "steps": [step.as_dict() for step in steps],
        }
    out = args.manifest.with_name(FILE)
    step_rows: list[dict[str, Any]] = result["steps"]
    write_atomically(out, json.dumps(result, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n")
    rules = sum(len(step["rules"]) for step in step_rows)
    documents_read = sum(sources.values())
    manifest.count_all_kept(documents_read)
    left_out = sum(len(step["left_out"]) for step in step_rows)
    manifest.summary = {"steps": len(steps), "rules": rules, "left_out": left_out}
    return [out]


def add_manifests(parser: argparse.ArgumentParser) -> None:
    """Add --manifests."""
    parser.add_argument(
        "--manifests", required=True, type=Path, nargs="+", help="manifests of documents, scores, verdicts and tokens"
    )


EXAMPLE = "--manifests $(find results/main -name '*manifest.json' -not -path '*/report/*')"
main = Program("report.whatif", __doc__, Task, body, add_manifests, EXAMPLE)


if __name__ == "__main__":
    raise SystemExit(main())
