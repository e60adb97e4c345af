"""Words and sentences of a text in any language, by Unicode's properties alone.

A word is a run of letters, marks and digits. In scripts that put no space between words (UNSPACED) it is one user-perceived character
(extended grapheme cluster, Unicode Standard Annex 29). A sentence ends with punctuation that Unicode calls terminal (its sentence-break
classes STerm and ATerm), and goes over no empty line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import regex

Span = tuple[int, int]  # characters of the text, the end not among them

UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
WORD = regex.compile(rf"(?V1)(?=[{UNSPACED}&&[\p{{L}}\p{{N}}]])\X|[[\p{{L}}\p{{M}}\p{{N}}]--{UNSPACED}]+")
UNSPACED_CHARACTER = regex.compile(rf"(?V1){UNSPACED}")
LETTER = regex.compile(r"\p{L}")
# `.`, `!` and `?` also stand within numbers, names and addresses: there a sentence ends only before white space or an empty line.
# Such a run is read once, from its beginning: a line of a million points takes no longer than one of letters.
END = regex.compile(
    r"(?V1)(?:(?<![.!?])[.!?]++[\p{SB=Close}]*+(?=\s|\Z)|[[\p{SB=STerm}\p{SB=ATerm}]--[.!?]]+[\p{SB=Close}]*)|(?P<gap>\n\s*\n)"
)


@dataclass
class Text:
    """A document's text, with the words in it. source: where it comes from; id: of the document."""

    id: str
    source: str
    text: str

    @cached_property
    def words(self) -> list[Span]:
        """Every word, in order."""
        return [match.span() for match in WORD.finditer(self.text)]

    @cached_property
    def folded_words(self) -> list[str]:
        """Every word after case folding."""
        return [self.text[start:end].casefold() for start, end in self.words]

    def first_word_at(self, at: int) -> int:
        """The number of the first word that begins at the character `at` or after it."""
        return bisect_left(self.words, at, key=lambda span: span[0])

    def stands_alone(self, number: int) -> bool:
        """Whether a word stands by itself: after white space, or in a script without spaces."""
        start = self.words[number][0]
        return not start or self.text[start - 1].isspace() or bool(UNSPACED_CHARACTER.match(self.text, start))

    def text_before(self, number: int, words: int) -> str:
        """The text before a word, from the beginning of the word that stands `words` before it, as it stands."""
        return self.text[self.words[max(0, number - words)][0] : self.words[number][0]]

    def sentence_spans(self) -> Iterator[tuple[int, int, int]]:
        """(number of the first word, number after the last word, end in characters) of every sentence; what has no end mark is none."""
        begin = 0
        for match in END.finditer(self.text):
            if match["gap"] is None:
                first, last = self.first_word_at(begin), self.first_word_at(match.start())
                if first < last:
                    yield first, last, match.end()
            begin = match.end()
