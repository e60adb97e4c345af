"""The order of a mix: shares at every prefix, windows read equally often, and the same for whoever asks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crawl2llm.training import data
from crawl2llm.training.mix_order import MixOrder, count_by_group, largest_deviation, phase_groups_at
from crawl2llm.training.mix_shares import Phase

WEIGHTS = st.lists(st.floats(0, 1) | st.just(0.0) | st.just(1.0), min_size=1, max_size=12)


def shares(weights: list[float]) -> list[float]:
    assume(sum(weights) > 1e-3)
    return [weight / sum(weights) for weight in weights]


@st.composite
def orders(draw: st.DrawFn) -> tuple[MixOrder, int]:
    """(an order of one to three phases over groups of one to forty windows, the windows of the run)."""
    groups, first, phases = draw(st.integers(1, 5)), 0, []
    for _ in range(draw(st.integers(1, 3))):
        weights = draw(st.lists(st.integers(0, 9), min_size=groups, max_size=groups).filter(any))
        phases.append(Phase(first, draw(st.integers(1, 150)), tuple(shares([float(w) for w in weights]))))
        first += phases[-1].windows
    sizes = draw(st.lists(st.integers(1, 40), min_size=groups, max_size=groups))
    names = [f"group {number}" for number in range(groups)]
    return MixOrder(phases, names, sizes, draw(st.integers(0, 2**32 - 1))), first


@settings(deadline=None)  # the machine may be busy
@given(WEIGHTS, st.integers(0, 10**9), st.integers(1, 400))
def test_shares_hold_at_every_prefix(weights: list[float], first: int, count: int) -> None:
    """Each group has its share of the first n windows within (k · share + 1) / 2 windows, wherever a phase is looked at."""
    wanted = np.array(shares(weights))
    groups, numbers = phase_groups_at(wanted, first, count)
    before = count_by_group(wanted, first)
    assert before.sum() == first and len(groups) == len(numbers) == count
    own = before + np.cumsum(groups[:, None] == np.arange(len(wanted)), axis=0)
    places = np.arange(first + 1, first + count + 1)[:, None]
    bound = ((wanted > 0).sum() * wanted + 1) / 2
    assert (np.abs(own - places * wanted) <= bound + 1e-9 * places).all()
    for group in set(groups.tolist()):  # the windows of a group one after the other, none twice and none left out
        mine = numbers[groups == group]
        assert mine.tolist() == list(range(before[group], before[group] + len(mine)))
    assert (count_by_group(wanted, first + count) == own[-1]).all()


@settings(deadline=None)
@given(orders(), st.data())
def test_any_part_of_the_order_is_that_part_of_the_whole(made: tuple[MixOrder, int], chance: st.DataObject) -> None:
    """So a run that resumes, whatever its batches are, reads what an unbroken one reads."""
    order, size = made
    whole = order.windows_at(0, size)
    first = chance.draw(st.integers(0, size - 1))
    count = chance.draw(st.integers(1, size - first))
    assert (order.windows_at(first, count) == whole[first : first + count]).all()
    assert (
        order.count_read_windows(first) == np.bincount(order.group_of(whole[:first]), minlength=len(order.sizes))
    ).all()


@settings(deadline=None)
@given(orders())
def test_windows_of_a_group_are_read_equally_often(made: tuple[MixOrder, int]) -> None:
    order, size = made
    windows = order.windows_at(0, size)
    for group, own in enumerate(order.sizes.tolist()):
        mine = windows[order.group_of(windows) == group] - order.bases[group]
        read = Counter(mine.tolist())
        often = [read[window] for window in range(own)]
        assert max(often) - min(often) <= 1 and sum(often) == len(mine)
        for epoch in range(len(mine) // own):  # all once before any is read again
            assert sorted(mine[epoch * own : (epoch + 1) * own]) == list(range(own))


@settings(deadline=None)
@given(orders(), st.sampled_from([(1, 12), (2, 6), (3, 4), (4, 1), (6, 2), (12, 1)]))
def test_any_number_of_processes_reads_the_same_batch(made: tuple[MixOrder, int], how: tuple[int, int]) -> None:
    order, _ = made
    (processes, micro_batch), batch = how, order.windows_at(24, 12)
    parts = [data.process_share(batch, rank, processes, micro_batch) for rank in range(processes)]
    assert (np.stack(parts, axis=1).ravel() == batch).all()


@settings(deadline=None)
@given(orders(), st.data())
def test_the_largest_deviation_is_that_of_a_plain_loop(made: tuple[MixOrder, int], chance: st.DataObject) -> None:
    order, size = made
    first = chance.draw(st.integers(0, size - 1))
    windows, wanted, own, found = order.windows_at(0, size), np.zeros(len(order.sizes)), np.zeros(len(order.sizes)), 0.0
    for place, group in enumerate(order.group_of(windows).tolist()):
        wanted += next(phase.shares for phase in reversed(order.phases) if phase.first <= place)
        own[group] += 1
        if place >= first:
            found = max(found, np.abs(own - wanted).max() / (place + 1))
    assert largest_deviation(order, first, size)[0] == pytest.approx(found)


def test_other_seeds_and_groups_have_other_orders() -> None:
    phases = [Phase(0, 400, (0.5, 0.5))]
    one, other = (MixOrder(phases, ["a", "b"], [400, 400], seed) for seed in (0, 1))
    assert (one.windows_at(0, 400) != other.windows_at(0, 400)).mean() > 0.9
    windows = one.windows_at(0, 400)
    assert (windows[windows < 400] != windows[windows >= 400] - 400).any()
    # A group's own order does not depend on the groups beside it.
    alone = MixOrder([Phase(0, 200, (1.0,))], ["b"], [400], 0).windows_at(0, 200)
    assert (windows[windows >= 400] - 400 == alone).all()
