"""Thresholds of a language from its own distribution of a measure, and the file that holds them.

FineWeb2 (Penedo et al. 2025, arXiv:2506.20920) derives its thresholds so: each language's is as far out in that language's distribution
as English's is in English's. The methods, for the threshold t of a rule on a measure with values x in the language, r in the reference:

- `mean_std`: mean(x) + (t - mean(r)) / std(r) * std(x): as many standard deviations from the mean.
- `median_ratio`: t * median(x) / median(r).
- `quantile`: what drops the same share of the language's documents as t does of the reference's.
- `tail`: what drops the share `tail` of the language's documents, whatever t is; FineWeb2 takes a tenth ("10Tail").

A distribution is a histogram, so that shards can be added up in any order: 1,001 bins of 0.001 up to 1, and above it 500 bins to each
power of ten. Means, deviations and quantiles are those of the histogram; what they lack in exactness is less than a bin.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.heuristics.looser_thresholds import Thresholds
from crawl2llm.filters.heuristics.rules import Rule

FILE = "thresholds.json"
DECADES, BINS_OF_DECADE = 7, 500
# Lower edges of the bins; the last has all that is larger.
EDGES = np.concatenate([np.arange(1001) / 1000, 10.0 ** (np.arange(1, DECADES * BINS_OF_DECADE + 1) / BINS_OF_DECADE)])
UPPER = np.append(EDGES[1:], EDGES[-1])
DIGITS = 3  # of a threshold, as in the files of FineWeb2's repository (configs/*.yml)
TOLERANCE = 1e-6  # a number that is nearer than this to a whole one is that number


def bin_indices(values: np.ndarray) -> np.ndarray:
    """The bin of each value; values lie from 0 up."""
    return np.searchsorted(EDGES, values, side="right") - 1


def value_histogram(values: np.ndarray) -> np.ndarray:
    """How many values are in each bin (int64, one for each of EDGES); NaN counts as no value."""
    return np.bincount(bin_indices(values[~np.isnan(values)]), minlength=len(EDGES)).astype(np.int64)


def mean_and_deviation(counts: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of a histogram, each value taken for its bin's lower edge."""
    total = int(counts.sum())
    mean = float(counts @ EDGES) / total
    return mean, math.sqrt(max(float(counts @ (EDGES - mean) ** 2) / total, 0.0))


def share_dropped(counts: np.ndarray, rule: Rule) -> float:
    """The share of values that the rule drops; a value in the same bin as the threshold is not dropped."""
    at = int(bin_indices(np.array([float(rule.threshold)]))[0])
    outside = counts[:at] if rule.low else counts[at + 1 :]
    return float(outside.sum() / counts.sum())


def strictest_edge(counts: np.ndarray, low: bool, share: float) -> float:
    """The strictest edge of a bin as threshold that drops no more than a share of the values."""
    allowed = math.floor(share * int(counts.sum()) + TOLERANCE)
    order = counts if low else counts[::-1]
    beyond = np.cumsum(order) - order  # dropped where the threshold keeps this bin
    last = int(np.searchsorted(beyond, allowed, side="right")) - 1
    return float(EDGES[last] if low else UPPER[len(counts) - 1 - last])


def derive_threshold(
    method: str, rule: Rule, kind: str, histogram: np.ndarray, reference: np.ndarray, tail: float
) -> float | None:
    """The threshold of a rule for a language, within what the measure's kind (`count`, `share`, `ratio`) can be.

    histogram, reference: histograms of the measure in the language and in the reference. None if the method says nothing: the reference
    does not vary, or has the median 0.
    """
    if method == "tail":
        threshold = strictest_edge(histogram, rule.low, tail)
    elif method == "quantile":
        share = share_dropped(reference, rule)
        threshold = strictest_edge(histogram, rule.low, share)
        if not share:  # any threshold beyond all values would do: not a stricter one than the reference has
            threshold = min(threshold, rule.threshold) if rule.low else max(threshold, rule.threshold)
    elif method == "median_ratio":
        median, reference_median = (
            float(EDGES[np.searchsorted(np.cumsum(counts), counts.sum() / 2)]) for counts in (histogram, reference)
        )
        if not reference_median:
            return None
        threshold = rule.threshold * median / reference_median
    else:
        (mean, deviation), (mean_of, deviation_of) = mean_and_deviation(histogram), mean_and_deviation(reference)
        if not deviation_of:
            return None
        threshold = mean + (rule.threshold - mean_of) / deviation_of * deviation
    threshold = min(max(threshold, 0.0), 1.0 if kind == "share" else math.inf)
    if kind == "count":
        return math.ceil(threshold - TOLERANCE) if rule.low else math.floor(threshold + TOLERANCE)
    unit = 10**DIGITS  # rounded to the looser side
    return (math.floor(threshold * unit + TOLERANCE) if rule.low else math.ceil(threshold * unit - TOLERANCE)) / unit


def read_thresholds(manifests: Sequence[Path]) -> dict[str, Thresholds]:
    """Thresholds by language and rule, of the manifest of heuristics.calibrate; {} without one."""
    thresholds: dict[str, Thresholds] = {}
    for path in manifests:
        thresholds |= json.loads(Manifest.read(path).file(FILE).read_text(encoding="utf-8"))
    return thresholds
