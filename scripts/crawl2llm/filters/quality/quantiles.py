"""Scores made comparable: the quantile that a score has among those of a reference set, and several scorers' quantiles fused into one.

A table of a scorer is its scores at POINTS equal steps of probability, from the lowest to the highest. Quantiles are of the better
end: 1 is the best document, whether high or low scores are better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FILE = "quantiles.json"  # of quality.calibrate
POINTS = 1001  # of a table: steps of a tenth of a percent


def quantile_table(scores: np.ndarray) -> list[float]:
    """The POINTS scores at equal steps of probability, by linear interpolation; empty if there is no score. NaN does not count."""
    real_scores = scores[~np.isnan(scores)]
    return [float(value) for value in np.quantile(real_scores, np.linspace(0, 1, POINTS))] if len(real_scores) else []


def quantiles_of(scores: np.ndarray, values: Sequence[float], better: str = "high") -> np.ndarray:
    """The quantile in [0, 1] of each score by a table; NaN of NaN, and of all if the table is empty.

    Between two entries it is interpolated; a score that several entries have gets the middle of theirs. It never falls where the
    score rises (rises, where low scores are better).
    """
    entries = np.asarray(values, float)
    if not len(entries):
        return np.full(len(scores), np.nan)
    left, right = np.searchsorted(entries, scores, "left"), np.searchsorted(entries, scores, "right")
    # Of a score that is an entry: the middle of the entries that are equal to it. Of another, left and right are the same.
    low, high = entries[np.clip(left - 1, 0, None)], entries[np.clip(left, None, len(entries) - 1)]
    part = np.divide(scores - low, high - low, out=np.zeros(len(scores)), where=high > low)
    place = np.where(left < right, (left + right - 1) / 2, np.where(left == 0, 0, left - 1 + part))
    quantiles: np.ndarray = np.clip(place / max(len(entries) - 1, 1), 0, 1)
    quantiles = np.where(np.isnan(scores), np.nan, quantiles)
    return quantiles if better == "high" else 1 - quantiles


def _weighted_mean(quantiles: np.ndarray, weights: np.ndarray, documents: int, constant: float) -> np.ndarray:
    """The weighted mean over the scorers that know a document, by the sum of the weights' sizes."""
    is_known = ~np.isnan(quantiles)
    total = np.where(is_known, np.abs(weights), 0).sum(1)
    return np.divide(
        np.where(is_known, quantiles, 0) @ weights, total, out=np.full(len(quantiles), np.nan), where=total > 0
    )


def _reciprocal_rank(quantiles: np.ndarray, weights: np.ndarray, documents: int, constant: float) -> np.ndarray:
    """Reciprocal rank fusion (Cormack et al. 2009, section 2): the mean of 1 / (constant + rank), ranks among `documents` from 1."""
    ranks = 1 + (1 - quantiles) * max(documents - 1, 0)
    return _weighted_mean(1 / (constant + ranks), weights, documents, constant)


def _lowest_quantile(quantiles: np.ndarray, weights: np.ndarray, documents: int, constant: float) -> np.ndarray:
    """The lowest quantile: all scorers have to agree."""
    return np.fmin.reduce(quantiles, axis=1)


def _highest_quantile(quantiles: np.ndarray, weights: np.ndarray, documents: int, constant: float) -> np.ndarray:
    """The highest quantile: one scorer is enough."""
    return np.fmax.reduce(quantiles, axis=1)


METHODS = {
    "linear": _weighted_mean,
    "reciprocal_rank": _reciprocal_rank,
    "minimum": _lowest_quantile,
    "maximum": _highest_quantile,
}


def fuse_quantiles(quantiles: Mapping[str, np.ndarray], rule: dict[str, Any], documents: int) -> np.ndarray:
    """One number for each document from the scorers' quantiles; higher is better, NaN if no scorer knows the document.

    rule: `method`, `weights` by scorer (1 where it has none; 0 leaves a scorer out) and `rank_constant`. documents: of the reference set.
    """
    weights = np.array([float(rule["weights"].get(name, 1.0)) for name in quantiles])
    columns = np.stack(list(quantiles.values()), axis=1)[:, weights != 0]
    if not columns.shape[1]:
        return np.full(len(columns), np.nan)
    return METHODS[rule["method"]](columns, weights[weights != 0], documents, float(rule["rank_constant"]))
