"""Precision and recall of a filter, with intervals, from marks on random samples of what it dropped and kept.

A group (dropped by a rule, kept) has `documents` in all, of which `marked` were drawn at random and marked, `right` of them as right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
Z = 1.959963984540054  # the quantile of the normal distribution that goes with it
DRAWS = 20_000  # of the posterior; its own error is then below a third of a percentage point at the ends
SEED = 0  # of these draws: the same marks give the same interval


@dataclass(frozen=True)
class Group:
    """`documents` in the group, `marked` of a random sample of it, `right` of these."""

    documents: int
    marked: int
    right: int


@dataclass(frozen=True)
class Estimate:
    """A share between 0 and 1, and the interval that holds the true one with CONFIDENCE."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class StratifiedShare:
    """What the marks of several groups say of all their documents: `share` that is right, the same leaning (see `stratified_share`), its
    variance.
    """

    share: float
    smooth: float
    variance: float


def stratified_share(groups: Sequence[Group]) -> StratifiedShare:
    """The share that is right over all documents of the groups.

    It is the stratified mean, sum of W_h p_h with W_h the group's share of the documents; its variance is
    sum of W_h^2 (N_h - n_h) / (N_h - 1) p_h (1 - p_h) / n_h (Cochran 1977, Sampling Techniques, 5.6 and 2.6). For the variance p_h leans
    by one document towards the share over all marks, itself with one right and one wrong document more, or a group without a wrong mark
    would count as known for sure. Raises ValueError if a group has no marks.
    """
    total, marks = sum(group.documents for group in groups), sum(group.marked for group in groups)
    if not total or any(not group.marked for group in groups):
        raise ValueError("a group without documents or marks")
    over_all = (sum(group.right for group in groups) + 1) / (marks + 2)
    share = smooth = variance = 0.0
    for group in groups:
        weight = group.documents / total
        leaning = (group.right + over_all) / (group.marked + 1)
        share += weight * group.right / group.marked
        smooth += weight * leaning
        finite_correction = (group.documents - group.marked) / max(1, group.documents - 1)
        variance += weight**2 * max(0.0, finite_correction) * leaning * (1 - leaning) / group.marked
    return StratifiedShare(share, smooth, variance)


def effective_sample(groups: Sequence[Group]) -> tuple[float, float]:
    """(share that is right over all documents of the groups, size of a simple random sample that would know it as well).

    The size is p (1 - p) / variance, as Korn and Graubard (1998, Survey Methodology 24(2)) put an effective size into a binomial interval.
    Infinite where every document is marked. Raises ValueError if a group has no marks.
    """
    stratified = stratified_share(groups)
    return stratified.share, stratified.smooth * (
        1 - stratified.smooth
    ) / stratified.variance if stratified.variance else math.inf


def wilson_interval(share: float, size: float) -> Estimate:
    """Wilson's score interval of a share found in a sample of `size` (Wilson 1927, JASA 22; recommended for small samples by Brown, Cai
    and DasGupta 2001, Statistical Science 16(2)). An infinite size is the whole population.
    """
    if math.isinf(size):
        return Estimate(share, share, share)
    middle = share + Z**2 / (2 * size)
    half = Z * math.sqrt(share * (1 - share) / size + Z**2 / (4 * size**2))
    scale = 1 + Z**2 / size
    return Estimate(share, max(0.0, min(share, (middle - half) / scale)), min(1.0, max(share, (middle + half) / scale)))


def jeffreys_interval(share: float, size: float) -> tuple[float, float]:
    """The ends of Jeffreys' interval of a share found in a sample of `size`; at a share of 0 or 1 it reaches it (Brown, Cai and DasGupta
    2001, 4.1). An infinite size is the whole population.
    """
    if math.isinf(size):
        return share, share
    from scipy.special import betaincinv  # here: a filter of one rule needs none of it

    tail, right, wrong = (1 - CONFIDENCE) / 2, size * share + 0.5, size * (1 - share) + 0.5
    low = 0.0 if share == 0 else float(betaincinv(right, wrong, tail))
    high = 1.0 if share == 1 else float(betaincinv(right, wrong, 1 - tail))
    return min(low, share), max(high, share)


def mover_interval(groups: Sequence[Group]) -> tuple[float, float, float]:
    """(share that is right over all documents of several groups, how far down and up its interval reaches), from the intervals of each.

    MOVER (Zou and Donner 2008, Statistics in Medicine 27(10)): down = sqrt of the sum of (W_h (p_h - low_h))^2, and up alike. One size for
    all groups, as `effective_sample` has it, does not do here: where the largest group's marks are all alike, the others move the share
    away from that end, and the interval would be as narrow as if it had been found in many marks. To no side it is narrower than the normal
    interval by the variance of `stratified_share`, which matters where many groups have hardly a wrong mark.
    """
    total, down, up = sum(group.documents for group in groups), 0.0, 0.0
    for group in groups:
        share = group.right / group.marked
        finite_correction = (group.documents - group.marked) / max(1, group.documents - 1)
        low, high = jeffreys_interval(share, group.marked / finite_correction if finite_correction > 0 else math.inf)
        down += (group.documents / total * (share - low)) ** 2
        up += (group.documents / total * (high - share)) ** 2
    stratified = stratified_share(groups)
    least = Z**2 * stratified.variance
    return stratified.share, math.sqrt(max(down, least)), math.sqrt(max(up, least))


def precision(groups: Sequence[Group]) -> Estimate | None:
    """The share of the groups' documents that are rightly there; None if one of them has no marks, or there are no documents."""
    filled = [group for group in groups if group.documents]
    if not filled or any(not group.marked for group in filled):
        return None
    if len(filled) == 1:
        return wilson_interval(*effective_sample(filled))
    share, down, up = mover_interval(filled)
    return Estimate(share, max(0.0, share - down), min(1.0, share + up))


def recall(dropped: Sequence[Group], kept: Group, rules: Sequence[Group] | None = None) -> Estimate | None:
    """Of the documents that should be dropped, the share that is: rightly dropped / (rightly dropped + wrongly kept).

    dropped: by rule; kept: `right` are rightly kept. rules: some of the rules alone: the share that they drop, first of all rules; those of
    all rules add up to the filter's recall. The interval is that of Webber (2013, Approximate Recall Confidence Intervals, ACM TOIS
    31(1)): posteriors of the number rightly dropped and of the number wrongly kept, under Jeffreys' prior, and the distribution of their
    ratio by drawing from both. None if a group that has documents has no marks, or no mark says that
    a document should be dropped.
    """
    counted = [group for group in (dropped if rules is None else rules) if group.documents]
    rest = [
        group
        for group in dropped
        if group.documents and rules is not None and all(group is not rule_group for rule_group in rules)
    ]
    if (
        not [*counted, *rest]
        or any(not group.marked for group in [*counted, *rest])
        or (kept.documents and not kept.marked)
    ):
        return None
    generator = np.random.default_rng(SEED)
    some_draws, rest_draws = draw_right_counts(counted, generator), draw_right_counts(rest, generator)
    missed, wrong = _wrongly_kept(kept, generator)
    middle = [sum(group.documents * group.right / group.marked for group in part) for part in (counted, rest)]
    total = sum(middle) + missed
    if not total:
        return None
    all_draws = some_draws + rest_draws + wrong
    low, high = np.quantile(
        np.divide(some_draws, all_draws, out=np.zeros(DRAWS), where=all_draws > 0),
        [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2],
    )
    value = middle[0] / total
    # At the ends the interval reaches them (Brown, Cai and DasGupta 2001, 4.1).
    low, high = (0.0 if not middle[0] else low), (1.0 if not missed and not middle[1] else high)
    return Estimate(value, min(float(low), value), max(float(high), value))


def draw_right_counts(groups: Sequence[Group], generator: np.random.Generator) -> np.ndarray:
    """Draws of the number of documents of the groups that are right, (DRAWS,).

    Of one group from Jeffreys' posterior; of several from a normal distribution of two halves, whose interval is that of `mover_interval`.
    """
    total = sum(group.documents for group in groups)
    if not total:
        return np.zeros(DRAWS)
    if len(groups) > 1:
        share, down, up = mover_interval(groups)
        normal = generator.standard_normal(DRAWS) / Z
        return total * np.clip(share + normal * np.where(normal < 0, down, up), 0, 1)
    share, size = effective_sample(groups)
    if math.isinf(size):
        return np.full(DRAWS, share * total)
    return total * generator.beta(size * share + 0.5, size * (1 - share) + 0.5, DRAWS)


def _wrongly_kept(kept: Group, generator: np.random.Generator) -> tuple[float, np.ndarray]:
    """(how many kept documents are wrongly kept, draws of that number, (DRAWS,)): those marked, and a beta-binomial of the others."""
    if not kept.documents:
        return 0.0, np.zeros(DRAWS)
    wrong = kept.marked - kept.right
    share = generator.beta(wrong + 0.5, kept.right + 0.5, DRAWS)
    unmarked = generator.binomial(max(0, kept.documents - kept.marked), share)
    return kept.documents * wrong / kept.marked, wrong + unmarked


def marks_needed(share: float, documents: int, half: float = 0.1) -> int:
    """How many marks of a group make the interval of a share about ± `half` wide; never more than its documents."""
    spread = max(share * (1 - share), 0.05)  # a share that looks like 1 may be 0.95
    unlimited = Z**2 * spread / half**2
    return max(1, min(documents, math.ceil(unlimited / (1 + (unlimited - 1) / max(1, documents)))))
