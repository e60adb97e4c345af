"""The top fraction of quality.select at several fractions, of all documents or of each language: the cuts of filters/quality/select.py.

A document is kept from the fraction on at whose cut its score is. Memory: a histogram of 512 kB for each language, and the scores of one
bin of each fraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from crawl2llm.filters.quality import by_language
from crawl2llm.filters.quality.select import FINE_BINS, crawl_scores, fine_bins
from crawl2llm.stages.report.other_thresholds.counts import Curve, Groups, Table
from crawl2llm.stages.report.other_thresholds.rows import Rows
from crawl2llm.stages.report.other_thresholds.shards import LANGUAGE_STEP, Tables
from crawl2llm.stages.report.other_thresholds.thresholds import MOST, MeasuredRows, RuleThreshold

KEY = "quality.select.keep_fraction"
ALL = ""  # the only group where languages are not apart
Parts = Callable[[], Iterable[tuple[str, np.ndarray]]]


def fraction_cuts(parts: Parts, fractions: np.ndarray) -> dict[str, np.ndarray]:
    """Group → the score at or above which the top of each fraction lies, (fractions,). parts: (group, scores), is called twice."""
    counts: dict[str, np.ndarray] = {}
    highest: dict[str, float] = {}
    for group, scores in parts():
        counts[group] = counts.get(group, 0) + np.bincount(fine_bins(scores), minlength=FINE_BINS)
        highest[group] = max(highest.get(group, 0.0), float(scores.max(initial=0.0)))
    places: dict[str, list[tuple[int, int] | None]] = {}  # (bin of the cut, how many scores of it lie below)
    for group, bin_counts in counts.items():
        below, number = np.cumsum(bin_counts), int(bin_counts.sum())
        places[group] = []
        for fraction in fractions:
            drop = number - round(number * float(fraction))
            at = int(np.searchsorted(below, drop, side="right"))
            sharp = number and fraction < 1 and drop < number
            places[group].append((at, drop - int(below[at] - bin_counts[at])) if sharp else None)
    inside: dict[tuple[str, int], list[np.ndarray]] = {
        (group, place[0]): [] for group, of_group in places.items() for place in of_group if place
    }
    for group, scores in parts():
        bins = fine_bins(scores)
        for at in {place[0] for place in places[group] if place}:
            inside[group, at].append(scores[bins == at])
    sorted_ = {key: np.sort(np.concatenate(chunks)) for key, chunks in inside.items()}
    out = {}
    for group, of_group in places.items():
        none = counts[group].sum() == 0
        ends = [0.0 if fraction >= 1 or none else float(np.nextafter(highest[group], 2)) for fraction in fractions]
        out[group] = np.array(
            [sorted_[group, place[0]][place[1]] if place else end for place, end in zip(of_group, ends, strict=True)]
        )
    return out


class Fraction(Curve):
    """The curve of `keep_fraction`."""

    def __init__(self, tables: Tables, step: str, settings: Mapping[str, Any], skipped_by: list[str]) -> None:
        about = ["The fraction is of the documents that get here; the classifier and its scores are those of the run."]
        if settings["by"] == "language":
            about.append("Each language has its own cut.")
        super().__init__(RuleThreshold(KEY, ("fraction",), MOST, settings["keep_fraction"], self.measure, about))
        self.paths = [tables.table(step, shard) for shard in tables.shards]
        self.settings, self.skipped_by = settings, skipped_by
        self.by = None
        if settings["by"] == "language":
            self.by = by_language.LanguageThresholds(
                self.paths, tables.manifests_of(LANGUAGE_STEP), {**settings, "skipped_by": skipped_by}
            )
        self.cuts: dict[str, np.ndarray] = {}

    def survey_rows(self, rows: Rows) -> None:
        """How many documents the fraction decides on."""
        free = ~np.isnan(rows.values("score")) & ~rows.exempt & (rows.number_fired == rows.rule_fires("fraction"))
        self.moving += int(np.count_nonzero(free))

    def choose_points(self, number: int, node: dict[str, Any], sources: Groups, languages: Groups) -> None:
        """Even steps from 0 to 1, and the fraction of now."""
        even = np.linspace(0, 1, number).round(3)
        self.points = np.unique(np.append(even, self.settings["keep_fraction"]))
        self.table = Table(sources, languages, len(self.points) + 1)
        by = self.by
        parts = (
            by._scores_by_group
            if by
            else lambda: ((ALL, scores) for scores in crawl_scores(self.paths, self.skipped_by))
        )
        self.cuts = fraction_cuts(parts, self.points)

    def measure(self, rows: Rows) -> MeasuredRows:
        """The least of the points that keeps each row; infinite where none does."""
        scores = rows.values("score")
        out = np.where(np.isnan(scores), np.nan, np.inf)
        groups = [self.by.group_of.get(label, "") if self.by else ALL for label in rows.label_names]
        for code, group in enumerate(groups):
            if group in self.cuts:
                in_group = (rows.labels == code) | (self.by is None)
                at = np.searchsorted(-self.cuts[group], -scores[in_group], side="left")
                least_points = np.append(self.points, np.inf)[at]
                out[in_group] = np.where(np.isnan(scores[in_group]), np.nan, least_points)
            if self.by is None:
                break
        return out, None
