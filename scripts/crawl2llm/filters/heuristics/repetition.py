"""Repeated n-grams of a document: the Gopher rules' measures.

An n-gram occurs twice only where both (n-1)-grams in it do. So each length looks only at the positions that the length
before it left, which in ordinary text are few after n = 3. N-grams are numbered, not hashed: counts are exact.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

TOP = (2, 3, 4)
DUPLICATE = (5, 6, 7, 8, 9, 10)

Ints = npt.NDArray[np.int64]


def ngram_characters(tokens: list[str], vocabulary: Mapping[str, object], scale: int = 1) -> dict[int, int]:
    """Characters in the most frequent 2-, 3-, 4-gram, and in repeated 5- to 10-grams of words, keyed by n.

    tokens: N strings. vocabulary: a mapping whose keys are the different tokens. scale: how many tokens make a word; 1,
    or more where tokens are characters of a script written without spaces.

    For n in TOP: the length of the n-gram that occurs most often (the first of equals), its tokens joined by a
    space (none if `scale` is above 1), times its occurrences; they may overlap. For n in DUPLICATE: the document is read from the
    left; an n-gram seen before counts with its tokens' characters, and reading continues after it.
    """
    characters = dict.fromkeys((*TOP, *DUPLICATE), 0)
    size = len(vocabulary)
    number = dict(zip(vocabulary, range(size), strict=True))
    ids = np.fromiter(map(number.__getitem__, tokens), np.int64, len(tokens))
    lengths = np.fromiter(map(len, vocabulary), np.int64, size)[ids]
    ends = np.concatenate(([0], np.cumsum(lengths)))  # characters before each token
    gap = 1 if scale == 1 else 0
    for n in TOP:  # where nothing repeats, every n-gram is as frequent as the first
        if len(tokens) >= n * scale:
            characters[n] = int(ends[n * scale]) + gap * (n - 1)

    # Positions of the repeated n-grams of the length before, ascending, and the number of the n-gram at each: shape (P,).
    positions, grams = np.arange(len(tokens)), ids
    for length in range(2, DUPLICATE[-1] * scale + 1):
        left = np.flatnonzero(positions[1:] == positions[:-1] + 1)
        if not len(left):
            break
        keys = grams[left] * size + grams[left + 1]
        positions = positions[left]
        grams, counts = _number_keys(keys)
        occurrences = counts[grams]
        highest_count = int(counts.max())
        if highest_count == 1:
            break
        n = length // scale if length % scale == 0 else 0
        if n in TOP:
            start = int(positions[np.argmax(occurrences == highest_count)])
            characters[n] = (int(ends[start + length] - ends[start]) + gap * (n - 1)) * highest_count
        repeated = occurrences > 1
        positions, grams, size = positions[repeated], grams[repeated], len(counts)
        if n in DUPLICATE:
            characters[n] = _duplicate_characters(positions, grams, ends, length)
    return characters


def _number_keys(keys: Ints) -> tuple[Ints, Ints]:
    """Equal keys under one number: (number of each key, how often each number occurs). np.unique at half the cost."""
    order = keys.argsort()
    ordered = keys[order]
    group = np.concatenate(([False], ordered[1:] != ordered[:-1])).cumsum()
    numbers = np.empty_like(group)
    numbers[order] = group
    return numbers, np.bincount(group)


def _duplicate_characters(positions: Ints, grams: Ints, ends: Ints, length: int) -> int:
    """Characters of n-grams seen before, read from the left without overlap."""
    seen: set[int] = set()
    characters = free = 0
    for position, gram in zip(positions.tolist(), grams.tolist(), strict=True):
        if position < free:
            continue
        if gram in seen:
            characters += int(ends[position + length] - ends[position])
            free = position + length
        else:
            seen.add(gram)
    return characters
