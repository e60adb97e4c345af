"""From a difference and its error to a verdict: t intervals, p-values corrected for the number of comparisons, and what could be seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from scipy import optimize, special, stats

from crawl2llm.stages.report.sweeps.noise import Part
from crawl2llm.stages.report.sweeps.resample import Floats

BETTER, WORSE, UNCLEAR, UNKNOWN = "better", "worse", "unclear", "unknown"
MOST_SEEDS = 1000  # with more, no one trains
NODES = 1000


def half_width(error: Part, alpha: float) -> float:
    """Half of the interval that leaves out the truth with probability `alpha`: Student's t times the standard error."""
    return float(stats.t.isf(alpha / 2, error.freedom)) * math.sqrt(error.variance) if error.variance else 0.0


def p_value(difference: float, error: Part) -> float:
    """Two-sided: how often such a difference, or a larger one, comes of noise alone. Without any error 1 for no difference, 0 for one."""
    if error.variance <= 0:
        return float(difference == 0)
    return float(2 * stats.t.sf(abs(difference) / math.sqrt(error.variance), error.freedom))


def holm_corrected(values: Sequence[float]) -> list[float]:
    """p-values corrected for their number, in the given order: those below α are the ones that Holm's method rejects at α.

    The chance of even one false finding among all is then at most α, whatever they depend on (Holm 1979, Scandinavian Journal of
    Statistics 6(2)).
    """
    order = sorted(range(len(values)), key=lambda place: values[place])
    out, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, values[place] * (len(values) - rank)))
        out[place] = largest
    return out


def verdict(difference: float, corrected: float, alpha: float, lower_is_better: bool) -> str:
    """`better` or `worse` where the corrected p-value is at most alpha; else `unclear`."""
    if corrected > alpha or difference == 0:
        return UNCLEAR
    return BETTER if (difference < 0) == lower_is_better else WORSE


@cache
def _error_spreads(freedom: float) -> Floats:
    """√(χ²/f) at NODES equal shares of its distribution: how far an estimated standard error is from the true one."""
    shares = (np.arange(NODES) + 0.5) / NODES
    spreads: Floats = np.sqrt(stats.chi2.ppf(shares, freedom) / freedom)
    return spreads


def power(difference: float, error: Part, alpha: float) -> float:
    """The probability that a true difference is seen, at a two-sided level `alpha`; the error is taken for the true one.

    By the noncentral t distribution (Cohen 1988, Statistical Power Analysis, chapter 2), as the mean of a normal distribution's tails over
    that of the standard error (Johnson, Kotz and Balakrishnan 1995, chapter 31), to about 1e-4: scipy's own gives NaN far from 0.
    """
    if error.variance <= 0:
        return float(difference != 0)
    beyond = stats.t.isf(alpha / 2, error.freedom) * _error_spreads(error.freedom)
    effect = abs(difference) / math.sqrt(error.variance)
    return float(np.mean(special.ndtr(effect - beyond) + special.ndtr(-effect - beyond)))


def smallest_visible(error: Part, alpha: float, target_power: float) -> float:
    """The smallest true difference that is seen with probability `target_power`; 0 without any error."""
    if error.variance <= 0:
        return 0.0
    wide = math.sqrt(error.variance)
    high = 2.0
    while power(high * wide, error, alpha) < target_power:
        high *= 2
    return float(optimize.brentq(lambda effect: power(effect * wide, error, alpha) - target_power, 0.0, high)) * wide


def seeds_needed(difference: float, error: Callable[[int], Part], alpha: float, target_power: float) -> int | None:
    """How many seeds each setting needs, so that a true `difference` is seen with probability `target_power`; None for more than
    MOST_SEEDS.

    error: of the difference with so many seeds each. It becomes smaller with every seed, so the number is found by halving.
    """

    def is_seen(seeds: int) -> bool:
        return power(difference, error(seeds), alpha) >= target_power

    if difference == 0 or not is_seen(MOST_SEEDS):
        return None
    low, high = 1, MOST_SEEDS  # with one seed each there is no degree of freedom
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_seen(middle) else (middle, high)
    return high
