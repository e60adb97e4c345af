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

from crawl2llm.chain import command_line
from crawl2llm.chain.scorers import ANY, BUCKETS
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import sidecars
from crawl2llm.filters.quality.quantiles import FILE, fused, quantile
from crawl2llm.filters.quality.threshold_logic import COLUMNS, failures
from crawl2llm.formats.documents import Writer, shard_of


def buckets(
    scores: np.ndarray, languages: list[str | None], parts: dict[str, list[float]], better: str
) -> list[str | None]:
    """The bucket of each document by the cutoffs of its language; None without a score, or without cutoffs of its language.

    As cc_net (perplexity.py): from the first cutoff on `middle`, from the second on `tail`.
    """
    sign = 1 if better == "low" else -1
    found: list[str | None] = []
    for score, language in zip(scores, languages, strict=True):
        cuts = parts.get(language or ANY)
        known = cuts is not None and not np.isnan(score)
        found.append(BUCKETS[sum(sign * score >= sign * cut for cut in cuts or ())] if known else None)
    return found


def combined(table: pa.Table, held: dict[str, Any], require: list[list[dict[str, Any]]]) -> pa.Table:
    """What the step writes, from the joined scores of a shard. held: of quantiles.json."""
    facts = held["scorers"]
    scores = {name: sidecars.values(table, name) for name in facts}
    mapped = {name: quantile(scores[name], each["values"], each["better"]) for name, each in facts.items()}
    whole = quantile(fused(mapped, held["fused"]["rule"], held["fused"]["documents"]), held["fused"]["values"])
    languages, named = table["language"].to_pylist(), held["bucket_of"]
    parts: list[str | None] = [None] * len(table)
    if named:
        parts = buckets(scores[named], languages, held["cutoffs"], facts[named]["better"])
    failed = failures(scores, mapped, parts, require)
    drops = np.array([bool(names) for names in failed["failed"]], dtype=bool)
    columns: dict[str, Any] = {name: table[name] for name in ("id", "source", "curated", "language")}
    columns["bucket"] = pa.array(parts, pa.string())
    columns["quantile"] = pa.array(whole, pa.float64(), mask=np.isnan(whole))
    columns["score"] = pa.array(whole, pa.float64(), mask=np.isnan(whole) | drops)
    columns |= {name: pa.array(failed[name], kind) for name, kind in COLUMNS.items()}
    return pa.table({**columns, **{name: table[name] for name in facts}})


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    held = json.loads(Manifest.read(args.calibration).file(FILE).read_text(encoding="utf-8"))
    found = combined(sidecars.joined(args.scores), held, settings["require"])
    out = args.manifest.with_name(f"{shard_of(args.manifest)}.parquet")
    with Writer(out, found.schema) as writer:
        writer.add_table(found)
    manifest.counts = {"in": len(found), "kept": len(found), "dropped": {}}
    by_language: dict[str, dict[str, int]] = {}
    for language, bucket in zip(found["language"].to_pylist(), found["bucket"].to_pylist(), strict=True):
        if bucket:
            part = by_language.setdefault(language or ANY, dict.fromkeys(BUCKETS, 0))
            part[bucket] += 1
    manifest.summary = {"buckets": by_language}
    return [out]


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "quality.combine",
        __doc__,
        "--config config.yaml --calibration results/main/quality/calibrate/manifest.json "
        "--scores results/main/quality/fasttext/00000.manifest.json --manifest /tmp/00000.manifest.json",
    )
    parser.add_argument("--calibration", required=True, type=Path, help="manifest of quality.calibrate")
    parser.add_argument(
        "--scores", required=True, type=Path, nargs="+", help="manifests of the shard of every step that scores"
    )
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
