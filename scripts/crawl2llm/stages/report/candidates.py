"""How many near-duplicates MinHash proposes: the S-curve of the bands, and what it says of the pairs that were not found."""

from __future__ import annotations

from collections.abc import Sequence


def candidate_probability(similarity: float, bands: int, rows: int) -> float:
    """The probability that a pair of this Jaccard similarity agrees in one band or more: 1 − (1 − s^rows)^bands.

    Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4.2.
    """
    return float(1 - (1 - similarity**rows) ** bands)


def expected_missed_pairs(counts: Sequence[float], threshold: float, bands: int, rows: int) -> float:
    """How many pairs at or above the threshold agree in no band, estimated from those that were found.

    counts: candidate pairs by similarity, in bins of equal width over [0, 1]. Of n pairs found in a bin, n / p existed, p being the
    probability in its middle; a bin that the threshold cuts is left out.
    """
    width = 1 / len(counts) if counts else 0
    total = 0.0
    for number, pairs in enumerate(counts):
        if number * width >= threshold - 1e-9:
            total += pairs * (1 / candidate_probability((number + 0.5) * width, bands, rows) - 1)
    return total
