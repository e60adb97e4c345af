"""Which paragraphs were seen before, by a Bloom filter: memory is a few bits for each paragraph of the part, and nothing is sorted.

One filter for each part, which reads the shards in the order of their numbers: those of curated documents first, then the others. So the
same bytes come out whatever the number of workers, but not whatever the number of shards: the first of several equal paragraphs is that of
the lowest shard. A paragraph that only looks as if it had been seen goes too; `false_positive_rate` says how often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np

from crawl2llm.formats.first_occurrence import CURATED, merge_units
from crawl2llm.formats.hash_shuffle import Answers, Hashes, Rows

# Steele, Lea, Flood 2014: splitmix64's finalizer.
_ONE, _TWO = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP = 0x9E3779B97F4A7C15


def seeded_hashes(hashes: Hashes, seed: int) -> Hashes:
    """Other hashes for each seed, (hashes,)."""
    out = hashes + np.uint64(seed * _STEP & (1 << 64) - 1)
    out = (out ^ (out >> np.uint64(30))) * _ONE
    out = (out ^ (out >> np.uint64(27))) * _TWO
    return out ^ (out >> np.uint64(31))


def filter_keys(hashes: Hashes, seed: int) -> Iterator[int]:
    """Numbers of 128 bits with a sign, as rbloom takes them: of a hash, and the same in every process."""
    for high, low in zip(
        seeded_hashes(hashes, 2 * seed + 1).tolist(), seeded_hashes(hashes, 2 * seed + 2).tolist(), strict=True
    ):
        yield (high << 64 | low) - (1 << 127)


def answer_shards(
    shards: Callable[[], Iterable[tuple[int, Rows]]], rate: float, seed: int, answers: Answers
) -> tuple[int, int, int]:
    """Say to the shards which paragraphs are repeated, and where each stays.

    shards: gives (number, some of its rows of UNIT) of all shards, ascending, as often as it is called. Returns (paragraphs of a shard
    that were seen before or are there several times, bytes of the filter, paragraphs of all shards).
    """
    from rbloom import Bloom  # a package that nothing else needs

    number = sum(len(rows) for _, rows in shards())
    seen = Bloom(max(1, number), rate, hash_func=int)
    answered_units = 0
    for curated in (True, False):
        for shard, shard_rows in groupby(shards(), key=itemgetter(0)):
            # A shard has a row for each block that it wrote: of these, the first.
            rows = merge_units(np.concatenate([rows for _, rows in shard_rows]))
            rows = rows[(rows["rank"] < CURATED) == curated]
            seen_before = np.fromiter(
                (_was_added(seen, key) for key in filter_keys(rows["hash"], seed)), bool, len(rows)
            )
            several = seen_before | (rows["count"] > 1)
            answers.add(
                np.full(int(several.sum()), shard),
                rows["hash"][several],
                np.where(seen_before, -1, rows["document"])[several],
                np.where(seen_before, -1, rows["at"])[several],
            )
            answered_units += int(several.sum())
    return answered_units, seen.size_in_bits // 8, number


def _was_added(seen: object, key: int) -> bool:
    """Whether a key was there; it is now."""
    if key in seen:  # type: ignore[operator]
        return True
    seen.add(key)  # type: ignore[attr-defined]
    return False
