"""The top fraction of each language: where the curated sources are in one language, the top of all documents would be too.

Languages with fewer than LEAST_DOCUMENTS scored documents of the crawl are taken together. Memory: that of top_fraction.py, and the ids of
one shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.filters.quality.top_fraction import fraction_cuts
from crawl2llm.formats.documents import batches, parquet_file, rows, shard_of

LEAST_DOCUMENTS = 100  # documents; with fewer, a top fraction of them alone would be chance
OTHER_LANGUAGES = "other languages"
BATCH = 1 << 16  # rows read at a time


class LanguageThresholds:
    """The thresholds of documents under `by: language`.

    paths: the signals of quality.score; languages: the manifests of language.score, of the same shards at least.
    """

    def __init__(self, paths: list[Path], languages: list[Path], keep_fraction: float, skipped_by: list[str]) -> None:
        self.languages = {shard_of(path): path for path in languages}
        self.skipped_by = pa.array(skipped_by, pa.string())
        self.cached_languages: tuple[str, dict[str, str]] = ("", {})
        self.paths = paths
        self.documents: dict[str, int] = {}
        for language, scores in self._scores_by_language():
            self.documents[language] = self.documents.get(language, 0) + len(scores)
        small_languages = {language for language, number in self.documents.items() if number < LEAST_DOCUMENTS}
        self.group_of = {
            language: OTHER_LANGUAGES if language in small_languages else language for language in self.documents
        }
        cuts = fraction_cuts(self._scores_by_group, np.array([keep_fraction]))
        self.threshold_by_group = {group: float(cut) for group, (cut,) in cuts.items()}

    def row_thresholds(self, path: Path, signals: pa.RecordBatch) -> np.ndarray:
        """The threshold of each row of signals of a shard; 0 of one that takes no part."""
        groups = (self.group_of.get(language, "") for language in self._row_languages(path, signals))
        return np.array([self.threshold_by_group.get(group, 0.0) for group in groups])

    def manifest_summary(self) -> dict[str, Any]:
        """By group: the languages in it where they are several, its documents, and its threshold."""
        groups: dict[str, Any] = {}
        for group in sorted(self.threshold_by_group):
            members = sorted(language for language, language_group in self.group_of.items() if language_group == group)
            number = sum(self.documents[language] for language in members)
            groups[group] = {"documents": number, "threshold": self.threshold_by_group[group]}
            if group == OTHER_LANGUAGES:
                groups[group]["languages"] = members
        return groups

    def _row_languages(self, path: Path, signals: pa.RecordBatch) -> list[str]:
        shard = path.stem
        if self.cached_languages[0] != shard:
            file = parquet_file(self.languages[shard])
            self.cached_languages = shard, {row["id"]: row["language"] for row in rows(file, ["id", "language"])}
        return [self.cached_languages[1][name] for name in signals.column("id").to_pylist()]

    def _scores_by_group(self) -> Iterator[tuple[str, np.ndarray]]:
        return ((self.group_of[language], scores) for language, scores in self._scores_by_language())

    def _scores_by_language(self) -> Iterator[tuple[str, np.ndarray]]:
        """(language, scores) of the documents that are neither curated nor of sources that skip the filter, part by part."""
        for path in self.paths:
            for batch in batches(path, ["id", "source", "curated", "score"], size=BATCH):
                scores = pc.fill_null(batch.column("score"), np.nan).to_numpy(zero_copy_only=False)
                exempt = batch.column("curated").to_numpy(zero_copy_only=False)
                exempt = (
                    exempt
                    | pc.is_in(batch.column("source"), value_set=self.skipped_by).to_numpy(False)
                    | np.isnan(scores)
                )
                languages = np.array(self._row_languages(path, batch), dtype=object)
                for language in sorted(set(languages[~exempt])):
                    yield language, scores[~exempt & (languages == language)]
