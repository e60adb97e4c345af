"""The tasks that a document's own text gives: what may be asked about it, with the right choice and the wrong ones.

Every choice is made by a hash of the seed and the document's id, so that an item depends on its document alone. Right and wrong choices
are drawn in the same way from the same set, so that neither length nor frequency nor place tells them apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from crawl2llm.formats.documents import document_id, uniform
from crawl2llm.stages.evaluate.sentence_words import LETTER, Text
from crawl2llm.training.special_tokens import SPECIAL

CHOICES = 4
SENTENCE = (5, 40)  # words of a sentence whose words are swapped
BEFORE = 8  # words that at least stand before what is asked for
WIDE = 16  # characters a word, of a continuation: what has more is a table or a line drawn with characters


@dataclass
class Item:
    """A question without its order: choices[0] is the right one. `lacking`: wrong choices that the document did not give."""

    task: str
    document: str
    source: str
    at: int  # the character of the text where the choices begin
    context: str
    choices: list[str]
    lacking: int = 0

    @property
    def id(self) -> str:
        """xxh3-128 in hex of task, document and place."""
        return document_id(self.document, self.task, str(self.at))


@dataclass
class Found:
    """The items of one task in one document, by hash, and why other candidates gave none; candidates = items + dropped."""

    items: list[Item] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def candidates(self) -> int:
        """Places that were looked at."""
        return len(self.items) + self.dropped.total()


def capitals(word: str) -> tuple[bool, bool]:
    """Whether a word begins with a capital letter, and whether one is in it."""
    return word[0].isupper(), any(letter.isupper() for letter in word[1:])


class Maker:
    """Makes the items of one document. settings: of evaluate.items."""

    def __init__(self, text: Text, settings: dict[str, Any]) -> None:
        self.of, self.settings = text, settings

    def rank(self, task: str, at: int | str) -> float:
        """The hash by which one of several is taken."""
        return uniform(self.settings["seed"], f"{self.of.id}\x1f{at}", f"evaluate.items.{task}")

    def item(self, task: str, number: int, choices: list[str], lacking: int = 0) -> Item:
        """An item whose choices begin with the word `number`."""
        context = self.of.before(number, self.settings["context_words"])
        return Item(task, self.of.id, self.of.source, self.of.words[number][0], context, choices, lacking)

    def limited(self, task: str, candidates: dict[int, Callable[[], Item]], dropped: Counter[str]) -> Found:
        """At most `per_document` items of candidates (by the number of their word), by hash; none that spells a special token.

        Evaluation would not read that as text.
        """
        found = Found(dropped=dropped)
        for number in sorted(candidates, key=lambda number: (self.rank(task, number), number)):
            if len(found.items) == self.settings["per_document"]:
                dropped["over_per_document"] += 1
                continue
            item = candidates[number]()
            if any(name in text for name in SPECIAL for text in (item.context, *item.choices)):
                dropped["special_token"] += 1
            else:
                found.items.append(item)
        return found

    def word_order(self) -> Found:
        """A sentence as it stands, and the same with two adjacent words swapped. Candidates: sentences.

        Not the first word, whose capital letter would tell; only words with nothing but white space between them.
        """
        dropped, candidates = Counter[str](), dict[int, Callable[[], Item]]()
        seen: set[tuple[str, ...]] = set()
        for first, last, end in self.of.sentences():
            said = tuple(self.of.folded[first:last])
            if not SENTENCE[0] <= len(said) <= SENTENCE[1]:
                dropped["sentence_length"] += 1
            elif said in seen:
                dropped["repeated"] += 1
            elif pairs := [at for at in range(first + 1, last - 1) if self._swappable(at)]:
                candidates[first] = partial(self._swapped, first, pairs, end)
            else:
                dropped["no_pair"] += 1
            seen.add(said)
        return self.limited("word_order", candidates, dropped)

    def _swappable(self, at: int) -> bool:
        (_, end), (begin, _) = self.of.words[at : at + 2]
        return self.of.folded[at] != self.of.folded[at + 1] and not self.of.text[end:begin].strip()

    def _swapped(self, first: int, pairs: list[int], end: int) -> Item:
        at = min(pairs, key=lambda at: (self.rank("word_order.pair", at), at))
        (a, b), (c, d), start, text = *self.of.words[at : at + 2], self.of.words[first][0], self.of.text
        other = text[start:a] + text[c:d] + text[b:c] + text[a:b] + text[d:end]
        return self.item("word_order", first, [text[start:end], other])

    def next_word(self) -> Found:
        """The next word among four of as many bytes, that the document has about as often. Candidates: different words, case folded.

        Each at one of its places, by hash. About as often: the same power of two at or below their counts. All have their capital letters
        alike: where a sentence begins, the only one with a capital would be right.
        """
        dropped, candidates = Counter[str](), dict[int, Callable[[], Item]]()
        counts, places = Counter(self.of.folded), dict[str, tuple[float, int]]()
        for number in range(BEFORE, len(self.of.words)):
            word = self.of.folded[number]
            if LETTER.search(word) and self.of.apart(number):
                here = (self.rank("next_word.place", number), number)
                places[word] = min(here, places.get(word, here))
        surface = {word: self.of.text[slice(*self.of.words[number])] for word, (_, number) in places.items()}
        alike: dict[tuple[int, int, tuple[bool, bool]], list[str]] = defaultdict(list)
        for word, text in surface.items():
            alike[len(text.encode()), counts[word].bit_length(), capitals(text)].append(word)
        for words in alike.values():
            for word in words:
                if len(words) < CHOICES:
                    dropped["no_distractors"] += 1
                else:
                    candidates[places[word][1]] = partial(self._next, places[word][1], word, words, surface)
        return self.limited("next_word", candidates, dropped)

    def _next(self, number: int, word: str, alike: list[str], surface: dict[str, str]) -> Item:
        others = sorted((self.rank(f"next_word\x1f{word}", other), other) for other in alike if other != word)
        wrong = [surface[other] for _, other in others[: CHOICES - 1]]
        return self.item("next_word", number, [surface[word], *wrong])

    def spans(self) -> Iterator[tuple[int, str]]:
        """(number of the first word, text) of stretches of `continuation_words` words, side by side, from the word BEFORE on."""
        size, at = self.settings["continuation_words"], BEFORE
        while at + size <= len(self.of.words):
            if self.of.apart(at):
                start, end = self.of.words[at][0], self.of.words[at + size - 1][1]
                yield at, self.of.text[start:end]
                at += size
            else:
                at += 1

    def fits(self, said: str) -> bool:
        """Whether a stretch may be a choice for another document: neither wide nor with a special token, as no choice is."""
        wide = len(said) > WIDE * self.settings["continuation_words"]
        return not wide and not any(name in said for name in SPECIAL)

    def continuation(self) -> Found:
        """The next words among four stretches of as many words from other places of the document. Candidates: stretches.

        None of what the item shows before. An item that lacks wrong choices gets them from other documents (stages/evaluate/items.py).
        """
        dropped, spans = Counter[str](), list[tuple[int, str]]()
        for at, said in self.spans():
            if len(said) > WIDE * self.settings["continuation_words"]:
                dropped["wide"] += 1
            else:
                spans.append((at, said))
        candidates: dict[int, Callable[[], Item]] = {
            at: partial(self._continued, at, said, spans) for at, said in spans
        }
        return self.limited("continuation", candidates, dropped)

    def _continued(self, at: int, said: str, spans: list[tuple[int, str]]) -> Item:
        shown, size = self.settings["context_words"], self.settings["continuation_words"]
        rest = {said.casefold(): said}
        for _, other, text in sorted((self.rank(f"continuation\x1f{at}", other), other, text) for other, text in spans):
            if not at - shown - size < other < at + size and len(rest) < CHOICES:
                rest.setdefault(text.casefold(), text)
        return self.item("continuation", at, list(rest.values()), CHOICES - len(rest))


MAKERS: dict[str, Callable[[Maker], Found]] = {
    "word_order": Maker.word_order,
    "next_word": Maker.next_word,
    "continuation": Maker.continuation,
}
