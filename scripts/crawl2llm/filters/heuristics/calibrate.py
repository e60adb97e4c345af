"""Derive the heuristics' thresholds of each language from its own distribution, as FineWeb2 does (filters/heuristics/thresholds.py).

Reads the measures of all shards once, as histograms: 36 kB for each language and measure, 130 MB with 20 measures and the 176 languages of
lid.176, however many documents. `thresholds.json`: {language: {rule: threshold}}. A language with fewer than `least` documents keeps the
thresholds of the config, and is counted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core import language_codes
from crawl2llm.core.console import Progress, log
from crawl2llm.core.manifest import Manifest, pretty_json, write_atomically
from crawl2llm.core.settings import section
from crawl2llm.filters.heuristics.looser_thresholds import Thresholds
from crawl2llm.filters.heuristics.measures import MEASURES
from crawl2llm.filters.heuristics.rules import Rule, active_rules
from crawl2llm.filters.heuristics.settings import CalibrateSettings, SelectSettings
from crawl2llm.filters.heuristics.thresholds import EDGES, FILE, derive_threshold, value_histogram
from crawl2llm.formats.documents import batches, parquet_file, rows, shard_of

BATCH = 1 << 16  # rows read at a time


class Task(CalibrateSettings, SkippedBy):
    """The arguments of the program."""

    select: SelectSettings = section()  # of heuristics.select, for all languages


class Distributions:
    """Histograms of every measure that a rule compares, by language."""

    def __init__(self, measures: list[str]) -> None:
        self.measures = measures
        self.documents: Counter[str] = Counter()
        self.counts: dict[str, np.ndarray] = {}  # language → (measures, bins)

    def add_documents(self, languages: np.ndarray, values: dict[str, np.ndarray]) -> None:
        """Add documents: their languages, and of each measure their values (NaN: does not apply)."""
        for language in np.unique(languages):
            is_of_language = languages == language
            histograms = self.counts.setdefault(str(language), np.zeros((len(self.measures), len(EDGES)), np.int64))
            self.documents[str(language)] += int(is_of_language.sum())
            for number, measure in enumerate(self.measures):
                histograms[number] += value_histogram(values[measure][is_of_language])

    def histogram_of(self, language: str, measure: str) -> np.ndarray:
        """The histogram of a measure; of a language without documents, zeros."""
        if language not in self.counts:
            return np.zeros(len(EDGES), np.int64)
        histogram: np.ndarray = self.counts[language][self.measures.index(measure)]
        return histogram


def language_thresholds(distributions: Distributions, active: list[Rule], settings: Task) -> dict[str, Thresholds]:
    """Thresholds by language and rule. A rule that fewer than `least` documents of the language, or of the reference, have a value for is
    left out, and so is the reference, whose thresholds are the config's.
    """
    out: dict[str, Thresholds] = {}
    min_documents, method, reference = settings.least, settings.method, settings.reference
    assert method is not None  # else the run has no such step
    for language in sorted(distributions.documents):
        if language_codes.is_listed(language, [reference]) or distributions.documents[language] < min_documents:
            continue
        for rule in active:
            histogram_of_language = distributions.histogram_of(language, rule.measure)
            histogram_of_reference = distributions.histogram_of(reference, rule.measure)
            if histogram_of_language.sum() < min_documents or (
                method != "tail" and histogram_of_reference.sum() < min_documents
            ):
                continue
            value = derive_threshold(
                method, rule, MEASURES[rule.measure], histogram_of_language, histogram_of_reference, settings.tail
            )
            if value is not None:
                out.setdefault(language, {})[rule.name] = value
    return out


def counted_rows(batch: pa.RecordBatch, skipped_by: list[str]) -> np.ndarray:
    """Which documents' distribution it is: not those of curated sources, nor of sources that skip the filter."""
    skipped = [source in skipped_by for source in batch.column("source").to_pylist()]
    return ~(batch.column("curated").to_numpy(zero_copy_only=False) | np.array(skipped, bool))


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    active = [rule for rule in active_rules(settings.select) if rule.name in settings.rules]
    measures = sorted({rule.measure for rule in active})
    distributions = Distributions(measures)
    language_file = {shard_of(path): parquet_file(path) for path in args.languages}
    progress = Progress(len(args.signals), "shards")
    for path in args.signals:
        language_of = {row["id"]: row["language"] for row in rows(language_file[shard_of(path)], ["id", "language"])}
        for batch in batches(parquet_file(path), ["id", "source", "curated", *measures], size=BATCH):
            keep = counted_rows(batch, settings.skipped_by)
            languages = np.array([language_of[name] for name in batch.column("id").to_pylist()], dtype=object)[keep]
            values = {
                name: pc.cast(batch.column(name), "double").fill_null(np.nan).to_numpy(zero_copy_only=False)[keep]
                for name in measures
            }
            distributions.add_documents(languages.astype(str), values)
        progress.add()
    thresholds = language_thresholds(distributions, active, settings)
    small_languages = {
        name: number
        for name, number in sorted(distributions.documents.items())
        if name not in thresholds and name != settings.reference
    }
    log.info("thresholds of %s languages; %s have the config's", len(thresholds), len(small_languages))
    out = args.manifest.with_name(FILE)
    write_atomically(out, pretty_json(thresholds))
    manifest.summary = {
        "method": settings.method,
        "reference": settings.reference,
        "reference_documents": distributions.documents[settings.reference],
        "documents": {name: distributions.documents[name] for name in sorted(thresholds)},
        "default": small_languages,
        "thresholds": thresholds,
    }
    return [out]


main = Program("heuristics.calibrate", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
