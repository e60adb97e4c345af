"""The top fraction of quality.select at several fractions, of all documents or of each language: the cuts of filters/quality/select.py.

A document is kept from the fraction on at whose cut its score is. Memory: a histogram of 512 kB for each language, and the scores of one
bin of each fraction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crawl2llm.filters.quality import by_language
from crawl2llm.filters.quality.select import crawl_scores
from crawl2llm.filters.quality.settings import SelectSettings
from crawl2llm.filters.quality.top_fraction import fraction_cuts
from crawl2llm.stages.report.other_thresholds.counts import Curve, Groups, Table
from crawl2llm.stages.report.other_thresholds.rows import Rows
from crawl2llm.stages.report.other_thresholds.shards import LANGUAGE_STEP, Tables
from crawl2llm.stages.report.other_thresholds.thresholds import MOST, MeasuredRows, RuleThreshold

KEY = "quality.select.keep_fraction"
ALL = ""  # the only group where languages are not apart


class Fraction(Curve):
    """The curve of `keep_fraction`."""

    def __init__(self, tables: Tables, step: str, settings: SelectSettings, skipped_by: list[str]) -> None:
        about = ["The fraction is of the documents that get here; the classifier and its scores are those of the run."]
        if settings.by == "language":
            about.append("Each language has its own cut.")
        super().__init__(RuleThreshold(KEY, ("fraction",), MOST, settings.keep_fraction, self.measure, about))
        self.paths = [tables.table(step, shard) for shard in tables.shards]
        self.settings, self.skipped_by = settings, skipped_by
        self.by = None
        if settings.by == "language":
            self.by = by_language.LanguageThresholds(
                self.paths, tables.manifests_of(LANGUAGE_STEP), settings.keep_fraction, skipped_by
            )
        self.cuts: dict[str, np.ndarray] = {}

    def survey_rows(self, rows: Rows) -> None:
        """How many documents the fraction decides on."""
        free = ~np.isnan(rows.values("score")) & ~rows.exempt & (rows.number_fired == rows.rule_fires("fraction"))
        self.moving += int(np.count_nonzero(free))

    def choose_points(self, number: int, node: dict[str, Any], sources: Groups, languages: Groups) -> None:
        """Even steps from 0 to 1, and the fraction of now."""
        even = np.linspace(0, 1, number).round(3)
        self.points = np.unique(np.append(even, self.settings.keep_fraction))
        self.table = Table(sources, languages, len(self.points) + 1)
        by = self.by
        parts = (
            by._scores_by_group
            if by
            else lambda: ((ALL, scores) for scores in crawl_scores(self.paths, self.skipped_by))
        )
        self.cuts = fraction_cuts(parts, self.points)

    def measure(self, rows: Rows) -> MeasuredRows:
        """The least of the points that keeps each row; infinite if none does."""
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
