"""Which window of which group stands at each place of a run: a formula of the shares, without a table.

Of a phase in which group g has the share w, its window j (0, 1, …) is due at (j + 1/2) / w. The phase's order is that of these times, of
equal ones that of the groups: the divisor method of Webster and Sainte-Laguë (Balinski and Young 1982, Fair Representation). So of the
first n windows of a phase with k groups, a group has n · w within (k · w + 1) / 2 windows, whatever n is: of those that are due before a
time t, it has t · w within 1/2, so n is t within k/2.

Within a group, windows are read in the order of a permutation of (seed, group, epoch): all once before any is read again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from crawl2llm.training.data import Tokens, permute
from crawl2llm.training.mix_shares import Phase

AT_ONCE = 1 << 20  # numbers that `largest_deviation` compares together
Shares = npt.NDArray[np.float64]


def _due_times(shares: Shares, number: Tokens | Shares) -> Shares:
    """When the window `number` of each group is due. One definition, so that a comparison of two times is always the same."""
    with np.errstate(over="ignore"):  # of a share of 1e-310: never
        return (number + 0.5) / shares


def _count_due_before(shares: Shares, time: float) -> Tokens:
    """How many windows of each group are due before `time`; shares: all above 0."""
    counts = np.maximum(np.floor(time * shares - 0.5), 0.0)
    while (early := _due_times(shares, counts) < time).any():  # what rounding left out, or took in
        counts += early
    while (late := (counts > 0) & (_due_times(shares, counts - 1) >= time)).any():
        counts -= late
    return counts.astype(np.int64)


def phase_groups_at(shares: Sequence[float], first: int, count: int) -> tuple[Tokens, Tokens]:
    """The places [first, first + count) of a phase: (group, number of the window in that group's order within the phase), int64 [count]."""
    all_ = np.asarray(shares, np.float64)
    used_groups = np.flatnonzero(all_ > 0)
    weights = all_[used_groups]
    # Before this time at most `first` windows are due, and before that one all that are asked for.
    early, late = max(first - len(used_groups) / 2 - 2, 0.0), first + count + len(used_groups) / 2 + 2
    begun, ended = _count_due_before(weights, early), _count_due_before(weights, late)
    groups = np.repeat(np.arange(len(used_groups)), ended - begun)
    numbers = np.concatenate([np.arange(low, high) for low, high in zip(begun, ended, strict=True)])
    order = np.lexsort((groups, _due_times(weights[groups], numbers)))
    skipped = first - int(begun.sum())
    selected = order[skipped : skipped + count]
    return used_groups[groups[selected]], numbers[selected]


def count_by_group(shares: Sequence[float], places: int) -> Tokens:
    """How many of the first `places` windows of a phase each group has, int64 [groups]."""
    all_ = np.asarray(shares, np.float64)
    used_groups = np.flatnonzero(all_ > 0)
    out = np.zeros(len(all_), np.int64)
    early = max(places - len(used_groups) / 2 - 2, 0.0)
    out[used_groups] = begun = _count_due_before(all_[used_groups], early)
    rest = int(begun.sum())
    groups, _ = phase_groups_at(shares, rest, places - rest)
    return out + np.bincount(groups, minlength=len(all_))


class MixOrder:
    """The order of a whole run over windows that are numbered through all groups, those of the first group first.

    phases: of the run; the last has no end. sizes: windows of each group. names: of the groups, from which their permutations follow.
    """

    def __init__(self, phases: Sequence[Phase], names: Sequence[str], sizes: Sequence[int], seed: int) -> None:
        self.phases, self.sizes = list(phases), np.asarray(sizes, np.int64)
        self.bases = np.concatenate([[0], np.cumsum(self.sizes)])
        self.seeds = [xxhash.xxh3_64_intdigest(f"mix\x1f{name}".encode(), seed=seed) for name in names]
        self.earlier = [np.zeros(len(sizes), np.int64)]  # windows of each group before each phase
        for phase in self.phases[:-1]:
            self.earlier.append(self.earlier[-1] + count_by_group(phase.shares, phase.windows))

    def groups_at(self, first: int, count: int) -> tuple[Tokens, Tokens]:
        """The places [first, first + count) of the run: (group, how many windows of that group come before), int64 [count]."""
        parts: list[tuple[Tokens, Tokens]] = []
        for number, phase in enumerate(self.phases):
            end = self.phases[number + 1].first if number + 1 < len(self.phases) else first + count
            low, high = max(first, phase.first), min(first + count, end)
            if low < high:
                groups, numbers = phase_groups_at(phase.shares, low - phase.first, high - low)
                parts.append((groups, numbers + self.earlier[number][groups]))
        groups, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
        return groups, numbers

    def windows_at(self, first: int, count: int) -> Tokens:
        """The windows at the places [first, first + count): int64 [count], the same for any number of processes."""
        groups, numbers = self.groups_at(first, count)
        out = np.empty(count, np.int64)
        epochs, places = numbers // self.sizes[groups], numbers % self.sizes[groups]
        for group, epoch in {*zip(groups.tolist(), epochs.tolist(), strict=True)}:
            in_epoch = (groups == group) & (epochs == epoch)
            inside = permute(places[in_epoch], int(self.sizes[group]), self.seeds[group], epoch)
            out[in_epoch] = self.bases[group] + inside
        return out

    def group_of(self, windows: npt.ArrayLike) -> Tokens:
        """The group of each window, by its number among all; same shape."""
        groups: Tokens = np.searchsorted(self.bases, np.asarray(windows, np.int64), side="right") - 1
        return groups

    def count_read_windows(self, places: int) -> Tokens:
        """How many of the first `places` windows of the run each group has, int64 [groups]."""
        number = max(n for n, phase in enumerate(self.phases) if phase.first <= places)
        phase = self.phases[number]
        return self.earlier[number] + count_by_group(phase.shares, places - phase.first)


def largest_deviation(order: MixOrder, first: int, last: int) -> tuple[float, int, int]:
    """The largest difference, at any place from `first` to `last`, of the share that a group has of all windows until there from the
    share that the phases give it: (that difference, the group, the number of windows)."""
    largest = (0.0, 0, first)
    have, due = order.count_read_windows(first).astype(float), _due_until(order, first)
    at_once = max(1, AT_ONCE // len(order.sizes))
    for low in range(first, last, at_once):
        size = min(at_once, last - low)
        groups, _ = order.groups_at(low, size)
        places = np.arange(low + 1, low + size + 1)
        rates = np.array([order.phases[number].shares for number in _phase_of(order, places - 1)])
        due_so_far = due + np.cumsum(rates, axis=0)
        read_so_far = have + np.cumsum(groups[:, None] == np.arange(len(order.sizes)), axis=0)
        away = np.abs(read_so_far - due_so_far) / places[:, None]
        place, group = np.unravel_index(int(away.argmax()), away.shape)
        if away[place, group] > largest[0]:
            largest = float(away[place, group]), int(group), int(places[place])
        have, due = read_so_far[-1], due_so_far[-1]
    return largest


def _phase_of(order: MixOrder, places: Tokens) -> Tokens:
    firsts = [phase.first for phase in order.phases]
    numbers: Tokens = np.searchsorted(firsts, places, side="right") - 1
    return numbers


def _due_until(order: MixOrder, places: int) -> Shares:
    """The windows of each group that the shares give it of the first `places` of the run."""
    out = np.zeros(len(order.sizes))
    for number, phase in enumerate(order.phases):
        end = order.phases[number + 1].first if number + 1 < len(order.phases) else places
        out += max(0, min(end, places) - phase.first) * np.asarray(phase.shares)
    return out
