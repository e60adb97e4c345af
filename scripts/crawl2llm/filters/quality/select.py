"""Keep the documents with the highest scores of the quality classifier, all curated ones, and those of sources that skip this filter.

`method: fraction` keeps the top `keep_fraction` of the crawl's documents. `method: pareto` keeps a document with score s when a
Pareto(alpha) draw exceeds 1 - s, so that some noise stays (Brown et al. 2020, arXiv:2005.14165, appendix A); the draw
is a hash of (seed, id). `method: threshold` keeps scores of `threshold` and more. With several scorers the score is that of
quality.combine.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core.console import Progress
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.quality import by_language, threshold_logic
from crawl2llm.filters.quality.settings import SelectSettings
from crawl2llm.filters.quality.top_fraction import fraction_cuts
from crawl2llm.formats.documents import (
    VERDICT,
    VERDICTS,
    Writer,
    add_counts,
    batches,
    parquet_file,
    shard_of,
    uniform_hash,
    verdict_digests,
    verdict_table,
)

BINS = 20  # of the histogram of scores over [0, 1]
BATCH = 1 << 16  # rows read at a time


def rows_of_sources(signals: pa.RecordBatch, names: list[str]) -> np.ndarray:
    """Which rows are of these sources."""
    is_of_source: np.ndarray = pc.is_in(signals.column("source"), value_set=pa.array(names, pa.string())).to_numpy(
        False
    )
    return is_of_source


def crawl_scores(paths: list[Path], skipped_by: list[str]) -> Iterator[np.ndarray]:
    """The scores of all documents that are neither curated nor of these sources, part by part; nulls (no classifier) are left out."""
    for path in paths:
        for batch in batches(path, ["source", "curated", "score"], size=BATCH):
            scores = batch.column("score").to_numpy(zero_copy_only=False).astype(float)
            exempt = batch.column("curated").to_numpy(zero_copy_only=False) | rows_of_sources(batch, skipped_by)
            yield scores[~exempt & ~np.isnan(scores)]


def top_fraction_threshold(parts: Callable[[], Iterable[np.ndarray]], fraction: float) -> float:
    """The score at or above which the top `fraction` of the scores lies; 0 if there are none. parts: all scores, is called twice."""
    cuts = fraction_cuts(lambda: (("", scores) for scores in parts()), np.array([fraction]))
    return float(cuts[""][0]) if cuts else 0.0


def pareto_draw(seed: int, identifier: str, alpha: float) -> float:
    """A draw from NumPy's Pareto II (Lomax) distribution, from the hash of (seed, id) by its inverse."""
    return float((1.0 - uniform_hash(seed, identifier, "pareto")) ** (-1.0 / alpha) - 1.0)


class Task(SelectSettings, SkippedBy):
    """The arguments of the program."""


def judge_batch(signals: pa.RecordBatch, settings: Task, threshold: float | np.ndarray) -> pa.Table:
    """The verdicts on rows of signals; `threshold` is what `top_fraction_threshold` found, or that of each row. As columns: one task judges
    all documents.

    A document of a source that skips this filter is kept, and has the rule that would have dropped it.
    """
    scores = pc.fill_null(signals.column("score"), np.nan).to_numpy(zero_copy_only=False)
    exempt = signals.column("curated").to_numpy(zero_copy_only=False) | np.isnan(scores)
    skipped = rows_of_sources(signals, settings.skipped_by)
    if settings.method == "pareto":
        seed, alpha = settings.seed, settings.alpha
        thresholds = 1.0 - np.array([pareto_draw(seed, name, alpha) for name in signals.column("id").to_pylist()])
        failed = ~exempt & (scores <= thresholds)
    else:
        thresholds = np.full(len(scores), threshold)
        failed = ~exempt & (scores < thresholds)
    dropped = failed & ~skipped
    out, rule = pa.array(~dropped), pa.scalar(settings.method, pa.string())
    none = pa.scalar(None, pa.string())
    starts = pa.array(np.concatenate([[0], np.cumsum(failed)]), pa.int32())
    columns = {
        "id": signals.column("id"),
        "kept": out,
        "rule": pc.if_else(out, none, rule),
        "value": pa.array(scores, mask=~dropped),
        "threshold": pa.array(thresholds, mask=~dropped),
        "rules": pa.ListArray.from_arrays(starts, pa.repeat(rule, int(failed.sum()))),
    }
    return verdict_table(columns)


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    signals = args.combined or args.signals
    paths, skipped_by = [parquet_file(path) for path in signals], settings.skipped_by
    columns = ["id", "source", "curated", "score", *(threshold_logic.COLUMNS if args.combined else ())]
    fixed_threshold = settings.threshold if settings.method == "threshold" else None
    threshold = (
        top_fraction_threshold(lambda: crawl_scores(paths, skipped_by), settings.keep_fraction)
        if fixed_threshold is None
        else fixed_threshold
    )
    language_thresholds = (
        by_language.LanguageThresholds(paths, args.languages, settings.keep_fraction, skipped_by)
        if args.languages
        else None
    )
    histogram, scored, exempt = np.zeros(BINS, np.int64), 0, 0
    for scores in crawl_scores(paths, skipped_by):
        histogram += np.histogram(scores, bins=BINS, range=(0.0, 1.0))[0]
        scored += len(scores)
    files, by_shard, digests = [], {}, {}
    manifest.counts = {"in": 0, "kept": 0, "dropped": {}}
    progress = Progress(len(paths), "shards")
    for path, shard in zip(paths, map(shard_of, signals), strict=True):
        files.append(args.manifest.with_name(f"{shard}.parquet"))
        dropped: Counter[str] = Counter()
        with Writer(files[-1], VERDICT) as writer:
            for batch in batches(path, columns, size=BATCH):
                verdicts = judge_batch(
                    batch,
                    settings,
                    language_thresholds.row_thresholds(path, batch) if language_thresholds else threshold,
                )
                verdicts = threshold_logic.apply_requirements(batch, verdicts, rows_of_sources(batch, skipped_by))
                writer.add_table(verdicts)
                dropped.update(verdicts["rule"].drop_null().to_pylist())
                failed = pc.greater(pc.list_value_length(verdicts["rules"]), 0)
                exempt += pc.sum(pc.and_(verdicts["kept"], failed)).as_py() or 0
        kept_documents = writer.count - dropped.total()
        by_shard[shard] = {"in": writer.count, "kept": kept_documents, "dropped": dict(sorted(dropped.items()))}
        digests[shard] = verdict_digests(files[-1])
        add_counts(manifest.counts, by_shard[shard])
        progress.add()
    manifest.summary = {
        "by_shard": by_shard,
        VERDICTS: digests,
        "scored": scored,
        "source_exempt": exempt,
        "method": settings.method,
        "threshold": threshold if settings.method != "pareto" and scored else None,
        "histogram": histogram.tolist(),
    }
    if language_thresholds:
        manifest.summary["by_language"] = language_thresholds.manifest_summary()
    return files


main = Program("quality.select", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
