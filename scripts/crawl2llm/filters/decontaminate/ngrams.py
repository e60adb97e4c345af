"""Hashes of every stretch of n words, and a set of such hashes that says quickly what is not in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
# Of splitmix64 (Steele, Lea and Flood 2014, figure 19); the last one, which is odd, also weighs a word's place in a stretch.
GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
WEIGHT = 0xD1342543DE82EF95
FLAGS_PER_HASH = 16  # places of the first table for each hash: one of 16 that are not in the set gets through it


def hash_numbers(numbers: npt.NDArray[np.int64]) -> Hashes:
    """A hash of each number."""
    hashes = numbers.astype(np.uint64) * GAMMA
    hashes = (hashes ^ (hashes >> np.uint64(30))) * FIRST_FACTOR
    hashes = (hashes ^ (hashes >> np.uint64(27))) * SECOND_FACTOR
    return hashes ^ (hashes >> np.uint64(31))


def hash_stretches(words: Hashes, n: int) -> Hashes:
    """The hash of each stretch of n of the words' hashes, (words − n + 1,): a polynomial in WEIGHT modulo 2^64.

    Those of 2, 4, 8, … words come from each other, and n is put together from them: of 13 words in 10 operations on arrays.
    """
    if len(words) < n:
        return np.zeros(0, np.uint64)
    out, length = np.zeros(len(words) + 1, np.uint64), 0  # of `length` words
    power, size, weight = words, 1, WEIGHT  # of 2^k words; WEIGHT^(2^k)
    while True:
        if n & size:
            count = len(words) - length - size + 1
            out = out[:count] * np.uint64(weight) + power[length : length + count]
            length += size
        if length == n:
            return out
        power = power[: len(power) - size] * np.uint64(weight) + power[size:]
        weight, size = weight * weight % (1 << 64), 2 * size


class HashSet:
    """The distinct hashes of a set, sorted, behind a table of flags: most lookups end there."""

    def __init__(self, hashes: Hashes) -> None:
        self.sorted = np.unique(hashes)
        bits = max(10, int(np.ceil(np.log2(max(1, len(self.sorted)) * FLAGS_PER_HASH))))
        self.shift = np.uint64(64 - bits)
        self.flags = np.zeros(1 << bits, bool)
        self.flags[self._flag_index(self.sorted)] = True

    def _flag_index(self, hashes: Hashes) -> Hashes:
        return hashes >> self.shift

    def find_places(self, hashes: Hashes) -> tuple[Places, Places]:
        """(places in `hashes`, places in `sorted`) of those that are in the set."""
        flagged_places = np.flatnonzero(self.flags[self._flag_index(hashes)])
        if not len(flagged_places) or not len(self.sorted):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        flagged_hashes = hashes[flagged_places]
        at = np.searchsorted(self.sorted, flagged_hashes)
        at[at == len(self.sorted)] = 0
        is_in_set = self.sorted[at] == flagged_hashes
        return flagged_places[is_in_set], at[is_in_set]
