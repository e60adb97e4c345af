"""Texts as words, and the hashes of every `n` words in a row.

A word is what stands between white space, as it is: case and punctuation count. In scripts that are written without spaces each character
is a word. Words are 64-bit hashes here. The hash of n words in a row is made of those of its halves, and so on: about log2(n) passes over
all texts of a batch at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from crawl2llm.formats.hash_shuffle import Hashes
from crawl2llm.text.characters import SPACELESS

_ONE, _TWO = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # splitmix64's (Steele, Lea, Flood 2014)
_WORD = re.compile(rf"{SPACELESS.pattern}|(?:(?!{SPACELESS.pattern})\S)+")
_PLAIN = re.compile(r"\S+")
BATCH = 1 << 21  # characters of the texts that are hashed at a time: some 350,000 words
KNOWN = 1 << 20  # words whose hashes are kept


class Words(dict[str, int]):
    """The hashes of words; the most common are asked for again and again."""

    def __missing__(self, word: str) -> int:
        if len(self) >= KNOWN:
            self.clear()
        found = self[word] = xxhash.xxh3_64_intdigest(word.encode())
        return found


_known = Words()


def words(text: str) -> list[str]:
    """The words of a text."""
    return _WORD.findall(text) if SPACELESS.search(text) else text.split()


def places(text: str) -> list[tuple[int, int]]:
    """(start, end) of the same words."""
    return [found.span() for found in (_WORD if SPACELESS.search(text) else _PLAIN).finditer(text)]


def hashes(text: str) -> Hashes:
    """The hash of each word, (words,)."""
    found = words(text)
    return np.fromiter(map(_known.__getitem__, found), np.uint64, len(found))


def joined(left: Hashes, right: Hashes) -> Hashes:
    """The hashes of two n-grams of words one after the other, (words,)."""
    out = (left ^ (left >> np.uint64(32))) * _ONE + right
    out = (out ^ (out >> np.uint64(29))) * _TWO
    return out ^ (out >> np.uint64(32))


def grams(hashes: Hashes, n: int) -> Hashes:
    """The hashes of every n words in a row, (words - n + 1,) or none."""
    if len(hashes) < n:
        return np.zeros(0, np.uint64)
    power, size = hashes, 1  # of `size` words in a row
    out, done = None, 0
    while True:
        if n & size:
            out = power if out is None else joined(out[: len(hashes) - done - size + 1], power[done:])
            done += size
        if done == n:
            return out[: len(hashes) - n + 1] if out is not None else hashes
        power = joined(power[:-size], power[size:])
        size *= 2


def least(values: Hashes, width: int) -> Hashes:
    """The least of every `width` values in a row, (values - width + 1,)."""
    out, size = values, 1
    while size * 2 <= width:
        out = np.minimum(out[:-size], out[size:])
        size *= 2
    return np.minimum(out[: len(values) - width + 1], out[width - size :])


@dataclass(frozen=True)
class Batch:
    """Texts one after the other. rows: what they come from. ends: where each ends among `words`, (texts,)."""

    rows: list[dict[str, Any]]
    words: Hashes
    ends: npt.NDArray[np.int64]

    def starts(self) -> npt.NDArray[np.int64]:
        """Where each text begins, (texts,)."""
        return np.concatenate((np.zeros(1, np.int64), self.ends[:-1]))

    def whole(self, n: int) -> npt.NDArray[np.bool_]:
        """Which n-grams are of one text, (words - n + 1,)."""
        if len(self.words) < n:
            return np.zeros(0, bool)
        cut = np.zeros(len(self.words) + 1, np.int64)
        np.add.at(cut, self.ends, 1)
        text = np.cumsum(cut)  # of the word at each place: how many texts end at it or before
        return text[: len(self.words) - n + 1] == text[n - 1 : len(self.words)]


def batches(rows: Iterable[dict[str, Any]]) -> Iterator[Batch]:
    """Documents with their `text` in batches of about BATCH characters; one that `takes_part` is false of has no words."""
    held: list[dict[str, Any]] = []
    parts: list[Hashes] = []
    number = 0
    for row in rows:
        held.append(row)
        parts.append(hashes(row["text"]) if row.get("takes_part", True) else np.zeros(0, np.uint64))
        number += len(row["text"])
        if number >= BATCH:
            yield Batch(held, np.concatenate(parts), np.cumsum([*map(len, parts)]))
            held, parts, number = [], [], 0
    if held:
        yield Batch(held, np.concatenate(parts), np.cumsum([*map(len, parts)]))
