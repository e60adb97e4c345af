"""The scores at which top fractions of documents begin.

Memory: a histogram of 512 kB for each group, and the scores of one bin of each cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

BINS = 1 << 16  # of the histogram that a cut is found by
Parts = Callable[[], Iterable[tuple[str, np.ndarray]]]  # (group, scores in [0, 1]), all of them at each call


def bins_of_scores(scores: np.ndarray) -> np.ndarray:
    """The bin of each score among BINS of equal width; a higher score is in no lower bin."""
    return np.clip((scores * BINS).astype(np.int64), 0, BINS - 1)


def fraction_cuts(parts: Parts, fractions: np.ndarray) -> dict[str, np.ndarray]:
    """Group → the score at or above which the top of each fraction lies, (fractions,); 0 for all of a group, and of a group without scores.

    parts: is called twice. The first pass finds the bin of each cut, the second the score in it.
    """
    counts: dict[str, np.ndarray] = {}
    highest: dict[str, float] = {}
    for group, scores in parts():
        counts[group] = counts.get(group, 0) + np.bincount(bins_of_scores(scores), minlength=BINS)
        highest[group] = max(highest.get(group, 0.0), float(scores.max(initial=0.0)))
    places: dict[str, list[tuple[int, int] | None]] = {}  # (bin of the cut, how many scores of it lie below)
    for group, bin_counts in counts.items():
        below, number = np.cumsum(bin_counts), int(bin_counts.sum())
        places[group] = []
        for fraction in fractions:
            drop = number - round(number * float(fraction))
            at = int(np.searchsorted(below, drop, side="right"))
            sharp = number and fraction < 1 and drop < number
            places[group].append((at, drop - int(below[at] - bin_counts[at])) if sharp else None)
    inside: dict[tuple[str, int], list[np.ndarray]] = {
        (group, place[0]): [] for group, of_group in places.items() for place in of_group if place
    }
    for group, scores in parts():
        bins = bins_of_scores(scores)
        for at in {place[0] for place in places[group] if place}:
            inside[group, at].append(scores[bins == at])
    sorted_ = {key: np.sort(np.concatenate(chunks)) for key, chunks in inside.items()}
    out = {}
    for group, of_group in places.items():
        none = counts[group].sum() == 0
        ends = [0.0 if fraction >= 1 or none else float(np.nextafter(highest[group], 2)) for fraction in fractions]
        out[group] = np.array(
            [sorted_[group, place[0]][place[1]] if place else end for place, end in zip(of_group, ends, strict=True)]
        )
    return out
