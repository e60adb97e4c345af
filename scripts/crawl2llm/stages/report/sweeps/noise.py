"""The noise between trainings of one setting with other seeds: of each setting, pooled over all, and how it adds to that of documents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crawl2llm.stages.report.sweeps.resample import Floats, bootstrap_variance


@dataclass(frozen=True)
class Part:
    """A part of the error of a difference: its variance, and the degrees of freedom that it is known with."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class Noise:
    """What seeds change. variance: of one training's measure among trainings of its setting; freedom: Σ (seeds − 1), 0 if no setting
    has two. shared: how much of it is by chance of the documents, for these are the same in `documents` of `difference` too.
    """

    variance: float = 0.0
    freedom: int = 0
    shared: float = 0.0


def standard_deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of a setting's trainings (divisor n − 1); None for fewer than two."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def pooled_variance(groups: Iterable[Sequence[float]]) -> Part:
    """The variance within settings, as in an analysis of variance: Σ Σ (value − mean of its setting)² / Σ (n − 1).

    It takes the noise to be the same in all settings. With 2 or 3 seeds each, a variance of a setting's own has 1 or 2 degrees of freedom,
    and hardly any difference could be seen; pooled over k settings it has k times as many (Box, Hunter and Hunter 2005, Statistics for
    Experimenters, section 4.2).
    """
    squares, freedom = 0.0, 0
    for values in groups:
        if len(values) > 1:
            squares += float(np.sum((np.asarray(values) - np.mean(values)) ** 2))
            freedom += len(values) - 1
    return Part(squares / freedom if freedom else 0.0, freedom)


def document_interaction(draws: Floats, groups: Sequence[Sequence[int]], documents: int) -> float:
    """The part of the variance between seeds that other documents would change: of the mean over documents, of one training.

    draws: [resamples, trainings] of the bootstrap over documents; groups: the columns of each setting. A training's deviation from
    the mean of its setting is resampled, so what documents do to all trainings of a setting alike drops out: the component of
    training × document in a two-way layout with random effects (Searle, Casella and McCulloch 1992, Variance Components, section 4.7).
    """
    total, freedom = 0.0, 0
    for columns in groups:
        if len(columns) > 1:
            group_draws = draws[:, list(columns)]
            deviations = group_draws - group_draws.mean(axis=1, keepdims=True)
            total += sum(bootstrap_variance(deviations[:, place], documents) for place in range(len(columns)))
            freedom += len(columns) - 1
    return total / freedom if freedom else 0.0


def add_parts(parts: Sequence[Part]) -> Part:
    """Independent parts of an error as one: variances add up, and the degrees of freedom are Satterthwaite's.

    (Σ v)² / Σ (v² / f): Satterthwaite 1946, Biometrics Bulletin 2(6); Welch 1947, Biometrika 34. Parts without any variance do not count.
    """
    nonzero = [part for part in parts if part.variance > 0]
    total = sum(part.variance for part in nonzero)
    if not nonzero:
        return Part(0.0, min((part.freedom for part in parts), default=0.0))
    return Part(total, total**2 / sum(part.variance**2 / part.freedom for part in nonzero))


def between_seeds(noise: Noise, seeds: tuple[int, int]) -> Part:
    """The part of seeds in a difference of two means over so many trainings."""
    return Part(noise.variance * sum(1 / number for number in seeds), noise.freedom)


def welch_part(first: Sequence[float], second: Sequence[float]) -> Part | None:
    """The same by each setting's own variance (Welch 1947); None if one of them has a single training."""
    if min(len(first), len(second)) < 2:
        return None
    parts = [Part(float(np.var(values, ddof=1)) / len(values), len(values) - 1) for values in (first, second)]
    return add_parts(parts)


def between_documents(draws: Floats, documents: int, noise: Noise, seeds: tuple[int, int]) -> Part:
    """The part of documents in a difference: by its paired bootstrap, less what the seeds' part holds of it already.

    draws: [resamples] of the difference of the two settings' means. Never below 0.
    """
    twice = noise.shared * sum(1 / number for number in seeds)
    return Part(max(0.0, bootstrap_variance(draws, documents) - twice), max(1, documents - 1))


def standard_error(part: Part) -> float:
    """The standard error."""
    return math.sqrt(part.variance)
