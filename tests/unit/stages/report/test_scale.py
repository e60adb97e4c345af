"""The axis of a what-if curve: to scale, or logarithmic where values span decades."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl2llm.stages.report.scale import LINEAR, LOG, Axis


def test_even_shares_are_to_scale() -> None:
    axis = Axis([0.0, 0.1, 0.2, 0.9, 1.0])
    assert axis.kind == LINEAR
    assert [axis.position_of(value) for value in axis.points] == [0.0, 0.1, 0.2, 0.9, 1.0]
    assert axis.ticks() == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def test_values_over_decades_are_logarithmic_and_0_stands_at_the_left_end() -> None:
    axis = Axis([10, 20, 50, 100, 100_000])
    assert axis.kind == LOG
    assert [round(axis.position_of(value), 3) for value in (10, 100, 1000, 100_000)] == [0, 0.25, 0.5, 1]
    assert axis.ticks() == [10, 100, 1000, 10_000, 100_000]
    with_none = Axis([0, 10, 20, 50, 100_000])
    assert (
        with_none.position_of(0) == 0 < with_none.position_of(10) < with_none.position_of(20)
        and with_none.ticks()[0] == 0
    )


@pytest.mark.parametrize("points", [[0.001, 0.3, 0.6, 1.0], [-5.0, 1.0, 1000.0], [0.0, 0.0001], [3.0], [0.0, 0.0]])
def test_what_is_not_crowded_stays_to_scale(points: list[float]) -> None:
    axis = Axis(points)
    assert axis.kind == LINEAR and axis.position_of(points[0]) == 0 and axis.ticks()


@given(st.lists(st.floats(-10, 1e6).map(lambda value: float(f"{value:.3g}")), min_size=2, max_size=30, unique=True))
def test_places_rise_with_the_values_from_one_end_to_the_other(values: list[float]) -> None:
    axis = Axis(sorted(values))
    places = [axis.position_of(value) for value in axis.points]
    assert places == sorted(places) and places[0] == 0 and places[-1] == pytest.approx(1)
    ticks = axis.ticks()
    assert (
        ticks == sorted(ticks)
        and all(-1e-6 <= axis.position_of(tick) <= 1 + 1e-6 for tick in ticks)
        and len(ticks) <= 12
    )
