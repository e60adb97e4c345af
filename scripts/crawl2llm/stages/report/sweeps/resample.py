"""Draw documents with replacement, the same for all models at once: every difference of two models is a paired bootstrap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crawl2llm.core.intervals import AT_ONCE

Floats = npt.NDArray[np.float64]


def bootstrap_means(scores: Floats, sizes: Floats, resamples: int, seed: list[int]) -> Floats:
    """sum(scores) / sum(sizes) of each model over documents drawn with replacement, [resamples, models].

    scores: [models, documents]; sizes: [documents], such as bytes, or items of a task. One draw counts for all models, so column a less
    column b is the paired cluster bootstrap of their difference: Efron and Tibshirani 1993, chapter 13; Miller 2024, arXiv:2411.00640,
    sections 2.2 and 4. Memory: AT_ONCE × documents counts at a time.
    """
    chance, batches = np.random.default_rng(seed), []
    documents = len(sizes)
    for begin in range(0, resamples, AT_ONCE):
        number = min(AT_ONCE, resamples - begin)
        times = chance.multinomial(documents, np.full(documents, 1 / documents), size=number).astype(np.float64)
        total = times @ sizes
        # A draw without any item of a task (its documents are few) says nothing.
        total[total == 0] = np.nan
        batches.append(times @ scores.T / total[:, None])
    return np.concatenate(batches)


def bootstrap_variance(draws: Floats, documents: int) -> float:
    """The variance of a mean over documents, by its resamples [resamples]; those of n documents lie too close together, by (n − 1) / n
    (Hesterberg 2015, arXiv:1411.5279, section 3.2). 0 for fewer than two documents.
    """
    finite = draws[np.isfinite(draws)]
    if documents < 2 or len(finite) < 2:
        return 0.0
    return float(np.var(finite, ddof=1)) * documents / (documents - 1)
