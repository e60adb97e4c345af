"""Unigram and bigram models over tokens: what a task or a text is worth to one who has only counted.

Unigram: (c(w) + 1)/(N + V). Bigram: absolute discounting, interpolated with the unigram (Ney, Essen and Kneser 1994, "On structuring
probabilistic dependences in stochastic language modelling"; as in Chen and Goodman 1999, section 2.6):
p(w|v) = max(c(v, w) − D, 0)/c(v) + D·n(v)/c(v)·p(w), with n(v) the number of different tokens after v, and D = n1/(n1 + 2·n2) of the
numbers of pairs that were seen once and twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Nats = npt.NDArray[np.float64]


class Counts:
    """Counts of tokens and of pairs of adjacent tokens in documents.

    documents: ids of shape [tokens] each; the first token of each follows `eos`. Memory: some 40 bytes a token, `token_limit` at most.
    """

    def __init__(self, documents: Iterable[Ids], vocabulary: int, eos: int, token_limit: int) -> None:
        self.vocabulary, self.eos, self.tokens = vocabulary, eos, 0
        parts: list[Ids] = []
        self.single = np.zeros(vocabulary, np.int64)
        for ids in documents:
            counted_ids = ids[: token_limit - self.tokens]
            if not len(counted_ids):
                break
            self.tokens += len(counted_ids)
            self.single += np.bincount(counted_ids, minlength=vocabulary)
            parts.append(self._pair_keys(np.concatenate([[eos], counted_ids[:-1]]), counted_ids))
        pairs = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        self.pairs, self.counts = np.unique(pairs, return_counts=True)
        first = self.pairs // vocabulary
        self.after = np.bincount(first, weights=self.counts, minlength=vocabulary)  # c(v)
        self.kinds = np.bincount(first, minlength=vocabulary)  # n(v)

    def _pair_keys(self, before: Ids, ids: Ids) -> Ids:
        return before.astype(np.int64) * self.vocabulary + ids

    @cached_property
    def discount(self) -> float:
        """D; one half where no pair was seen once or twice."""
        once, twice = int((self.counts == 1).sum()), int((self.counts == 2).sum())
        return once / (once + 2 * twice) if once and twice else 0.5

    def unigram(self, before: Ids, ids: Ids) -> Nats:
        """Negative log-likelihoods of tokens, in nats, of shape [tokens]; what stands before them does not count."""
        del before
        return np.asarray(-np.log((self.single[ids] + 1) / (self.tokens + self.vocabulary)), np.float64)

    def bigram(self, before: Ids, ids: Ids) -> Nats:
        """Negative log-likelihoods of tokens, in nats, each after the one `before` it; both of shape [tokens]."""
        keys = self._pair_keys(before, ids)
        at = np.minimum(np.searchsorted(self.pairs, keys), max(0, len(self.pairs) - 1))
        seen = np.where(self.pairs[at] == keys, self.counts[at], 0) if len(self.pairs) else np.zeros(len(keys))
        total = np.maximum(self.after[before], 1)
        rest = np.where(self.after[before] > 0, self.discount * self.kinds[before] / total, 1.0)
        single = np.exp(-self.unigram(before, ids))
        return np.asarray(-np.log(np.maximum(seen - self.discount, 0) / total + rest * single), np.float64)

    def total_nats(self, model: str, ids: Ids, before: int | None = None) -> float:
        """The sum over a stretch of tokens, in nats. model: `unigram` or `bigram`; before: the token before it, or `eos`."""
        history = np.concatenate([[self.eos if before is None else before], ids[:-1]]).astype(np.int64)
        return float(getattr(self, model)(history, ids).sum())
