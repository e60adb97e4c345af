"""Cuts long texts into passages, as Rephrase the Web does (Maini et al. 2024, arXiv:2401.16380, section 3: at most 300 tokens, since a
model that rephrases more at once loses what the text says).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Where a text may be cut, the best place first: between paragraphs, lines, sentences, words.
PLACES = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?…।](?![.!?…।])[\"'”’)\]]*+\s|[。！？]"),
    re.compile(r"\s"),
)


def passages(text: str, most: int) -> Iterator[str]:
    """The text in passages of at most `most` characters, none of them empty; what stands between two is left out where it is a space.

    A passage ends at the last paragraph's end that leaves it at least half of `most`, else at a line's, a sentence's or a word's.
    """
    start = 0
    while start < len(text):
        end = len(text) if len(text) - start <= most else _passage_end(text, start, start + most)
        if piece := text[start:end].strip():
            yield piece
        start = end


def _passage_end(text: str, start: int, last: int) -> int:
    """Where the passage from `start` ends, at most at `last`."""
    half = start + (last - start + 1) // 2
    for place in PLACES:
        ends = [match.end() for match in place.finditer(text, half, last)]
        if ends:
            return ends[-1]
    return last
