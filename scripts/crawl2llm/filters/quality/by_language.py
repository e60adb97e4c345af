"""The top fraction of each language: where the curated sources are in one language, the top of all documents would be too.

Languages with fewer than LEAST scored documents of the crawl are taken together. Memory: a histogram of 512 kB for each language, the
scores of one bin of each, and the ids of one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.formats.documents import batches, data, rows, shard_of

LEAST = 100  # documents; with fewer, a top fraction of them alone would be chance
REST = "other languages"
FINE = 1 << 16  # bins of the histogram that a cut is found by
BATCH = 1 << 16  # rows read at a time
Parts = Callable[[], Iterable[tuple[str, np.ndarray]]]  # (group, scores), all of them at each call


def fine(scores: np.ndarray) -> np.ndarray:
    """The bin of each score in [0, 1] among FINE of equal width."""
    return np.clip((scores * FINE).astype(np.int64), 0, FINE - 1)


def cuts(parts: Parts, fraction: float) -> dict[str, float]:
    """Group → the score at or above which the top `fraction` of its scores lies. parts: is called twice, as in `select.cut`."""
    counts: dict[str, np.ndarray] = {}
    highest: dict[str, float] = {}
    for group, scores in parts():
        counts[group] = counts.get(group, 0) + np.bincount(fine(scores), minlength=FINE)
        highest[group] = max(highest.get(group, 0.0), float(scores.max(initial=0.0)))
    found: dict[str, float] = {}
    places: dict[str, tuple[int, int]] = {}  # (bin of the cut, how many scores of the bin lie below it)
    for group, of in counts.items():
        number = int(of.sum())
        drop = number - round(number * fraction)
        if fraction >= 1 or drop == number:
            found[group] = 0.0 if fraction >= 1 else float(np.nextafter(highest[group], 2))
            continue
        below = np.cumsum(of)
        bin_ = int(np.searchsorted(below, drop, side="right"))
        places[group] = bin_, drop - int(below[bin_] - of[bin_])
    inside: dict[str, list[np.ndarray]] = {group: [] for group in places}
    for group, scores in parts():
        if group in places:
            inside[group].append(scores[fine(scores) == places[group][0]])
    found |= {group: float(np.partition(np.concatenate(inside[group]), at)[at]) for group, (_, at) in places.items()}
    return found


class Cuts:
    """The thresholds of documents under `by: language`.

    paths: the signals of quality.score; languages: the manifests of language.score, of the same shards at least.
    """

    def __init__(self, paths: list[Path], languages: list[Path], settings: dict[str, Any]) -> None:
        self.languages = {shard_of(path): path for path in languages}
        self.skipped_by = pa.array(settings["skipped_by"], pa.string())
        self.known: tuple[str, dict[str, str]] = ("", {})
        self.paths = paths
        self.documents: dict[str, int] = {}
        for language, scores in self._scores():
            self.documents[language] = self.documents.get(language, 0) + len(scores)
        few = {language for language, number in self.documents.items() if number < LEAST}
        self.group = {language: REST if language in few else language for language in self.documents}
        self.cuts = cuts(self._grouped, settings["keep_fraction"])

    def of(self, path: Path, signals: pa.RecordBatch) -> np.ndarray:
        """The threshold of each row of signals of a shard; 0 of one that takes no part."""
        groups = (self.group.get(language, "") for language in self._languages(path, signals))
        return np.array([self.cuts.get(group, 0.0) for group in groups])

    def summary(self) -> dict[str, Any]:
        """By group: the languages in it where they are several, its documents, and its threshold."""
        found: dict[str, Any] = {}
        for group in sorted(self.cuts):
            members = sorted(language for language, of in self.group.items() if of == group)
            number = sum(self.documents[language] for language in members)
            found[group] = {"documents": number, "threshold": self.cuts[group]}
            if group == REST:
                found[group]["languages"] = members
        return found

    def _languages(self, path: Path, signals: pa.RecordBatch) -> list[str]:
        shard = path.stem
        if self.known[0] != shard:
            file = data(self.languages[shard])
            self.known = shard, {row["id"]: row["language"] for row in rows(file, ["id", "language"])}
        return [self.known[1][name] for name in signals.column("id").to_pylist()]

    def _grouped(self) -> Iterator[tuple[str, np.ndarray]]:
        return ((self.group[language], scores) for language, scores in self._scores())

    def _scores(self) -> Iterator[tuple[str, np.ndarray]]:
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
                languages = np.array(self._languages(path, batch), dtype=object)
                for language in sorted(set(languages[~exempt])):
                    yield language, scores[~exempt & (languages == language)]
