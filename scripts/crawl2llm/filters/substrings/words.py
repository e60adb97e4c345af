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
CACHED_WORDS = 1 << 20  # words whose hashes are kept


class HashCache(dict[str, int]):
    """The hashes of words; the most common are asked for again and again."""

    def __missing__(self, word: str) -> int:
        if len(self) >= CACHED_WORDS:
            self.clear()
        digest = self[word] = xxhash.xxh3_64_intdigest(word.encode())
        return digest


_word_hashes = HashCache()


def split_words(text: str) -> list[str]:
    """The words of a text."""
    return _WORD.findall(text) if SPACELESS.search(text) else text.split()


def word_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of the same words."""
    return [match.span() for match in (_WORD if SPACELESS.search(text) else _PLAIN).finditer(text)]


def hash_words(text: str) -> Hashes:
    """The hash of each word, (words,)."""
    text_words = split_words(text)
    return np.fromiter(map(_word_hashes.__getitem__, text_words), np.uint64, len(text_words))


def join_hashes(left: Hashes, right: Hashes) -> Hashes:
    """The hashes of two n-grams of words one after the other, (words,)."""
    out = (left ^ (left >> np.uint64(32))) * _ONE + right
    out = (out ^ (out >> np.uint64(29))) * _TWO
    return out ^ (out >> np.uint64(32))


def ngram_hashes(hashes: Hashes, n: int) -> Hashes:
    """The hashes of every n words in a row, (words - n + 1,) or none."""
    if len(hashes) < n:
        return np.zeros(0, np.uint64)
    power, size = hashes, 1  # of `size` words in a row
    out, done = None, 0
    while True:
        if n & size:
            out = power if out is None else join_hashes(out[: len(hashes) - done - size + 1], power[done:])
            done += size
        if done == n:
            return out[: len(hashes) - n + 1] if out is not None else hashes
        power = join_hashes(power[:-size], power[size:])
        size *= 2


def sliding_minimum(values: Hashes, width: int) -> Hashes:
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

    def text_starts(self) -> npt.NDArray[np.int64]:
        """Where each text begins, (texts,)."""
        return np.concatenate((np.zeros(1, np.int64), self.ends[:-1]))

    def is_within_text(self, n: int) -> npt.NDArray[np.bool_]:
        """Which n-grams are of one text, (words - n + 1,)."""
        if len(self.words) < n:
            return np.zeros(0, bool)
        cut = np.zeros(len(self.words) + 1, np.int64)
        np.add.at(cut, self.ends, 1)
        text = np.cumsum(cut)  # of the word at each place: how many texts end at it or before
        return text[: len(self.words) - n + 1] == text[n - 1 : len(self.words)]


def word_batches(rows: Iterable[dict[str, Any]]) -> Iterator[Batch]:
    """Documents with their `text` in batches of about BATCH characters; one that `takes_part` is false of has no words."""
    batch_rows: list[dict[str, Any]] = []
    parts: list[Hashes] = []
    number = 0
    for row in rows:
        batch_rows.append(row)
        parts.append(hash_words(row["text"]) if row.get("takes_part", True) else np.zeros(0, np.uint64))
        number += len(row["text"])
        if number >= BATCH:
            yield Batch(batch_rows, np.concatenate(parts), np.cumsum([*map(len, parts)]))
            batch_rows, parts, number = [], [], 0
    if batch_rows:
        yield Batch(batch_rows, np.concatenate(parts), np.cumsum([*map(len, parts)]))
