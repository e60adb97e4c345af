"""Intervals of a mean over documents, by drawing documents with replacement."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

LEAST_DOCUMENTS = 10  # documents; with fewer, resampling them says little of others
AT_ONCE = 64  # resamples held in memory
DIGITS = 6
Floats = npt.NDArray[np.float64]


def tail_share(confidence: float, number: int) -> float:
    """The share of resamples beyond each end of an interval over `number` documents.

    Less than (1 − confidence)/2: resamples of few documents lie too close together, by sqrt(1 − 1/number), and a normal distribution
    takes their spread for known. Hesterberg 2015, arXiv:1411.5279 (the expanded percentile interval); Student's
    distribution by the expansion of Abramowitz and Stegun 1964, 26.7.5.
    """
    free, normal = number - 1, NormalDist()
    z = normal.inv_cdf((1 + confidence) / 2)
    terms = (
        z,
        (z**3 + z) / (4 * free),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3),
    )
    return normal.cdf(-sum(terms) * math.sqrt(number / free))


def bootstrap_interval(
    gains: Floats, sizes: Floats, resamples: int, confidence: float, seed: list[int]
) -> tuple[float, float, float]:
    """(standard error, low, high) of sum(gains) / sum(sizes), by drawing documents with replacement.

    gains, sizes: of each document, [documents]. The percentile interval of the paired cluster bootstrap: Efron and Tibshirani 1993,
    chapter 13, as wide as so few documents need (see `tail_share`); that the differences are taken document by document, Miller 2024,
    arXiv:2411.00640, sections 2.2 and 4.
    """
    generator, batches = np.random.default_rng(seed), []
    number = len(gains)
    for begin in range(0, resamples, AT_ONCE):
        times = generator.multinomial(number, np.full(number, 1 / number), size=min(AT_ONCE, resamples - begin))
        batches.append(times @ gains / (times @ sizes))
    means = np.concatenate(batches)
    beyond = tail_share(confidence, number)
    low, high = np.quantile(means, [beyond, 1 - beyond])
    return float(np.std(means, ddof=1)), float(low), float(high)
