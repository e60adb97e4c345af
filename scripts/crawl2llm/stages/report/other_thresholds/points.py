"""Which thresholds of a rule are asked about: values as they are spread over the documents, in few digits, and what is set now.

The counts at a threshold are exact. Only the choice of the thresholds goes by a histogram: bins of 1/256 of a power of two, of which those
that hold a value are in memory, so that shards can be added up in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SHIFT = 44  # of a float64's 64 bits: sign, exponent and 8 bits of the fraction stay
DIGITS = 3  # significant, of a threshold that is asked about


@dataclass
class Spread:
    """A histogram of finite values from 0 up. bins: their bits, sorted; counts: how many values of each; highest: the largest value."""

    bins: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    highest: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Add values (float64, NaN counts as none)."""
        finite = np.maximum(values[~np.isnan(values)], 0.0) + 0.0  # no -0
        bins, counts = np.unique(finite.view(np.int64) >> SHIFT, return_counts=True)
        joined, places = np.unique(np.concatenate((self.bins, bins)), return_inverse=True)
        total = np.zeros(len(joined), np.int64)
        np.add.at(total, places, np.concatenate((self.counts, counts)))
        self.bins, self.counts = joined, total
        self.highest = max(self.highest, float(finite.max(initial=0.0)))

    @property
    def edges(self) -> np.ndarray:
        """The lower edge of each bin."""
        edges: np.ndarray = (self.bins << SHIFT).view(np.float64)
        return edges


def round_threshold(value: float, whole: bool) -> float:
    """A threshold in few digits; a whole number where the key takes no other."""
    return float(round(value)) if whole else float(f"{value:.{DIGITS}g}")


def next_threshold(value: float, whole: bool, above: bool) -> float:
    """The next threshold in few digits from `value` on, or above it."""
    if whole:
        return float(math.floor(value) + 1 if above else math.ceil(value))
    threshold = round_threshold(value, whole)
    enough = threshold > value if above else threshold >= value
    return threshold if enough or not value else round_threshold(value * 1.01, whole)


def threshold_bounds(node: dict[str, Any]) -> tuple[float, float, bool]:
    """(least, most, whether it is whole) of the thresholds that a key takes. node: its schema."""
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    low, high = node.get("minimum", -math.inf), node.get("maximum", math.inf)
    if "exclusiveMinimum" in node:
        low = max(low, math.nextafter(node["exclusiveMinimum"], math.inf))
    return low, high, "integer" in kinds


def choose_thresholds(spread: Spread, number: int, now: float | None, node: dict[str, Any], least: bool) -> list[float]:
    """Up to `number` thresholds, ascending, and that of now: half by the documents, half by the different values.

    So a measure that is 0 for most documents has points in its tail too. node: the schema of the key, whose range they keep to.
    least: whether values of at least the threshold stay; the last point is then one that drops all, else one that keeps all.
    """
    low, high, whole = threshold_bounds(node)
    thresholds = [] if now is None else [float(now)]
    if len(spread.bins):
        edges, total = spread.edges, np.cumsum(spread.counts)
        half = max(2, number // 2)
        by_documents = np.searchsorted(total, np.linspace(0, total[-1], half), side="left").clip(max=len(edges) - 1)
        by_values = np.linspace(0, len(edges) - 1, max(2, number - half)).round().astype(np.int64)
        spread_thresholds = [
            round_threshold(float(edges[at]), whole) for at in np.unique(np.concatenate((by_documents, by_values)))
        ]
        spread_thresholds[-1] = max(spread_thresholds[-1], next_threshold(spread.highest, whole, least))
        thresholds += [min(max(value, low), high) for value in spread_thresholds]
    return sorted(set(thresholds))
