"""Combine the scores of a shard's documents: one quantile for each document, its bucket, and the thresholds that it fails.

Signals: `id, source, curated, language, bucket` (head, middle or tail), `quantile` (of the fused score; 1 is the best), `score` (the
same, null where `require` drops the document), what it fails under `require` (`failed`, `value`, `threshold`, `detail`), and a column for
each scorer.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl2llm.chain.step_program import Program
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import sidecars
from crawl2llm.filters.quality.quantiles import FILE, fuse_quantiles, quantiles_of
from crawl2llm.filters.quality.scorers import ANY_LANGUAGE, BUCKETS
from crawl2llm.filters.quality.settings import CombineRequire, CombineSettings
from crawl2llm.filters.quality.threshold_logic import COLUMNS, failure_columns
from crawl2llm.formats.documents import Writer, shard_of


def document_buckets(
    scores: np.ndarray, languages: list[str | None], parts: dict[str, list[float]], better: str
) -> list[str | None]:
    """The bucket of each document by the cutoffs of its language; None without a score, or without cutoffs of its language.

    As cc_net (perplexity.py): from the first cutoff on `middle`, from the second on `tail`.
    """
    sign = 1 if better == "low" else -1
    names: list[str | None] = []
    for score, language in zip(scores, languages, strict=True):
        cuts = parts.get(language or ANY_LANGUAGE)
        has_bucket = cuts is not None and not np.isnan(score)
        names.append(BUCKETS[sum(sign * score >= sign * cut for cut in cuts or ())] if has_bucket else None)
    return names


def combine_scores(table: pa.Table, calibration: dict[str, Any], require: list[list[CombineRequire]]) -> pa.Table:
    """What the step writes, from the joined scores of a shard. calibration: of quantiles.json."""
    facts = calibration["scorers"]
    scores = {name: sidecars.scorer_values(table, name) for name in facts}
    mapped = {
        name: quantiles_of(scores[name], table_facts["values"], table_facts["better"])
        for name, table_facts in facts.items()
    }
    fused_quantiles = quantiles_of(
        fuse_quantiles(mapped, calibration["fused"]["rule"], calibration["fused"]["documents"]),
        calibration["fused"]["values"],
    )
    languages, bucket_scorer = table["language"].to_pylist(), calibration["bucket_of"]
    parts: list[str | None] = [None] * len(table)
    if bucket_scorer:
        parts = document_buckets(
            scores[bucket_scorer], languages, calibration["cutoffs"], facts[bucket_scorer]["better"]
        )
    failed = failure_columns(scores, mapped, parts, require)
    drops = np.array([bool(names) for names in failed["failed"]], dtype=bool)
    columns: dict[str, Any] = {name: table[name] for name in ("id", "source", "curated", "language")}
    columns["bucket"] = pa.array(parts, pa.string())
    columns["quantile"] = pa.array(fused_quantiles, pa.float64(), mask=np.isnan(fused_quantiles))
    columns["score"] = pa.array(fused_quantiles, pa.float64(), mask=np.isnan(fused_quantiles) | drops)
    columns |= {name: pa.array(failed[name], kind) for name, kind in COLUMNS.items()}
    return pa.table({**columns, **{name: table[name] for name in facts}})


def body(args: argparse.Namespace, settings: CombineSettings, manifest: Manifest) -> list[Path]:
    calibration = json.loads(Manifest.read(args.calibration).file(FILE).read_text(encoding="utf-8"))
    combined_table = combine_scores(sidecars.join_sidecars(args.scores), calibration, settings.require)
    out = args.manifest.with_name(f"{shard_of(args.manifest)}.parquet")
    with Writer(out, combined_table.schema) as writer:
        writer.add_table(combined_table)
    manifest.count_all_kept(len(combined_table))
    by_language: dict[str, dict[str, int]] = {}
    for language, bucket in zip(
        combined_table["language"].to_pylist(), combined_table["bucket"].to_pylist(), strict=True
    ):
        if bucket:
            part = by_language.setdefault(language or ANY_LANGUAGE, dict.fromkeys(BUCKETS, 0))
            part[bucket] += 1
    manifest.summary = {"buckets": by_language}
    return [out]


def add_scores(parser: argparse.ArgumentParser) -> None:
    """Add --scores."""
    parser.add_argument(
        "--scores", required=True, type=Path, nargs="+", help="manifests of the shard of every step that scores"
    )


EXAMPLE = "--scores results/main/quality/fasttext/00000.manifest.json"
main = Program("quality.combine", __doc__, CombineSettings, body, add_scores, EXAMPLE)


if __name__ == "__main__":
    raise SystemExit(main())
