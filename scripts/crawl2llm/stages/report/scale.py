"""The places of thresholds on an axis: to scale, or on a logarithmic scale where their values span decades."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

LINEAR, LOG = "linear", "log"
DECADES = 2.0  # at least, between the smallest value above 0 and the largest, of a logarithmic axis
CROWDED_SHARE = 0.1  # of a linear axis: where half of the values would stand below this, a logarithmic one shows them
ZERO = 0.08  # of a logarithmic axis, at its left end: the place of 0
TICKS = 6  # about as many, of a linear axis


def axis_kind(points: Sequence[float]) -> str:
    """LOG for values from 0 up that span decades and crowd at the low end of a linear axis, else LINEAR."""
    above = [value for value in points if value > 0]
    if len(above) < 2 or min(points) < 0 or math.log10(max(above) / min(above)) < DECADES:
        return LINEAR
    crowded = median(points) - points[0] < CROWDED_SHARE * (points[-1] - points[0])
    return LOG if crowded else LINEAR


class Axis:
    """An axis from the first to the last of ascending values."""

    def __init__(self, points: Sequence[float]) -> None:
        self.points = [float(value) for value in points]
        self.kind = axis_kind(self.points)
        self.low = next((point for point in self.points if point > 0), 0.0)

    def position_of(self, value: float) -> float:
        """The place of a value, from 0 (left) to 1."""
        first, last = self.points[0], self.points[-1]
        if first == last:
            return 0.0
        if self.kind == LINEAR:
            return (value - first) / (last - first)
        if value <= 0:
            return 0.0
        start = ZERO if first <= 0 else 0.0
        above_low, whole = (math.log(end) - math.log(self.low) for end in (value, last))  # a quotient may overflow
        return start + (1 - start) * above_low / whole

    def ticks(self) -> list[float]:
        """Round values to write at the axis, ascending; with 0 on a logarithmic axis that has it."""
        first, last = self.points[0], self.points[-1]
        if first == last:
            return [first]
        if self.kind == LINEAR:
            step = _round_step((last - first) / TICKS)
            numbers = range(math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9) + 1)
            return [float(f"{number * step:.12g}") for number in numbers]
        powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(last) + 1e-9) + 1)
        stride = math.ceil(len(powers) / TICKS)
        round_values = [float(f"1e{power}") for power in powers[::stride]]
        return [0.0, *round_values] if first <= 0 else round_values


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten: the smallest of these from `step` on."""
    power = math.floor(math.log10(step))
    return next(rounded for times in (1, 2, 5, 10) if (rounded := times * 10.0**power) >= step * (1 - 1e-9))
