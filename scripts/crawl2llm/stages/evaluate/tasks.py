"""The tasks that a document's own text gives: what may be asked about it, with the right choice and the wrong ones.

Every choice is made by a hash of the seed and the document's id, so that an item depends on its document alone. Right and wrong choices
are drawn in the same way from the same set, so that neither length nor frequency nor place tells them apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from crawl2llm.formats.documents import document_id, uniform_hash
from crawl2llm.stages.evaluate.sentence_words import LETTER, Text
from crawl2llm.stages.evaluate.settings import ItemsSettings
from crawl2llm.training.special_tokens import SPECIAL

CHOICES = 4
SENTENCE_WORDS = (5, 40)  # words of a sentence whose words are swapped
WORDS_BEFORE = 8  # words that at least stand before what is asked for
# Characters a word, of a continuation: what has more is a table or a line drawn with characters.
CHARACTERS_PER_WORD = 16


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
class TaskItems:
    """The items of one task in one document, by hash, and why other candidates gave none; candidates = items + dropped."""

    items: list[Item] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def candidates(self) -> int:
        """Places that were looked at."""
        return len(self.items) + self.dropped.total()


def capital_pattern(word: str) -> tuple[bool, bool]:
    """Whether a word begins with a capital letter, and whether one is in it."""
    return word[0].isupper(), any(letter.isupper() for letter in word[1:])


class Maker:
    """Makes the items of one document."""

    def __init__(self, text: Text, settings: ItemsSettings) -> None:
        self.text, self.settings = text, settings

    def hash_rank(self, task: str, at: int | str) -> float:
        """The hash by which one of several is taken."""
        return uniform_hash(self.settings.seed, f"{self.text.id}\x1f{at}", f"evaluate.items.{task}")

    def build_item(self, task: str, number: int, choices: list[str], lacking: int = 0) -> Item:
        """An item whose choices begin with the word `number`."""
        context = self.text.text_before(number, self.settings.context_words)
        return Item(task, self.text.id, self.text.source, self.text.words[number][0], context, choices, lacking)

    def limit_items(self, task: str, candidates: dict[int, Callable[[], Item]], dropped: Counter[str]) -> TaskItems:
        """At most `per_document` items of candidates (by the number of their word), by hash; none that spells a special token.

        Evaluation would not read that as text.
        """
        task_items = TaskItems(dropped=dropped)
        for number in sorted(candidates, key=lambda number: (self.hash_rank(task, number), number)):
            if len(task_items.items) == self.settings.per_document:
                dropped["over_per_document"] += 1
                continue
            item = candidates[number]()
            if any(name in text for name in SPECIAL for text in (item.context, *item.choices)):
                dropped["special_token"] += 1
            else:
                task_items.items.append(item)
        return task_items

    def word_order(self) -> TaskItems:
        """A sentence as it stands, and the same with two adjacent words swapped. Candidates: sentences.

        Not the first word, whose capital letter would tell; only words with nothing but white space between them.
        """
        dropped, candidates = Counter[str](), dict[int, Callable[[], Item]]()
        seen: set[tuple[str, ...]] = set()
        for first, last, end in self.text.sentence_spans():
            sentence = tuple(self.text.folded_words[first:last])
            if not SENTENCE_WORDS[0] <= len(sentence) <= SENTENCE_WORDS[1]:
                dropped["sentence_length"] += 1
            elif sentence in seen:
                dropped["repeated"] += 1
            elif pairs := [at for at in range(first + 1, last - 1) if self._is_swappable(at)]:
                candidates[first] = partial(self._swapped_item, first, pairs, end)
            else:
                dropped["no_pair"] += 1
            seen.add(sentence)
        return self.limit_items("word_order", candidates, dropped)

    def _is_swappable(self, at: int) -> bool:
        (_, end), (begin, _) = self.text.words[at : at + 2]
        return self.text.folded_words[at] != self.text.folded_words[at + 1] and not self.text.text[end:begin].strip()

    def _swapped_item(self, first: int, pairs: list[int], end: int) -> Item:
        at = min(pairs, key=lambda at: (self.hash_rank("word_order.pair", at), at))
        (a, b), (c, d), start, text = *self.text.words[at : at + 2], self.text.words[first][0], self.text.text
        swapped_text = text[start:a] + text[c:d] + text[b:c] + text[a:b] + text[d:end]
        return self.build_item("word_order", first, [text[start:end], swapped_text])

    def next_word(self) -> TaskItems:
        """The next word among four of as many bytes, that the document has about as often. Candidates: different words, case folded.

        Each at one of its places, by hash. About as often: the same power of two at or below their counts. All have their capital letters
        alike: where a sentence begins, the only one with a capital would be right.
        """
        dropped, candidates = Counter[str](), dict[int, Callable[[], Item]]()
        counts, places = Counter(self.text.folded_words), dict[str, tuple[float, int]]()
        for number in range(WORDS_BEFORE, len(self.text.words)):
            word = self.text.folded_words[number]
            if LETTER.search(word) and self.text.stands_alone(number):
                place = (self.hash_rank("next_word.place", number), number)
                places[word] = min(place, places.get(word, place))
        surface = {word: self.text.text[slice(*self.text.words[number])] for word, (_, number) in places.items()}
        alike: dict[tuple[int, int, tuple[bool, bool]], list[str]] = defaultdict(list)
        for word, text in surface.items():
            alike[len(text.encode()), counts[word].bit_length(), capital_pattern(text)].append(word)
        for words in alike.values():
            for word in words:
                if len(words) < CHOICES:
                    dropped["no_distractors"] += 1
                else:
                    candidates[places[word][1]] = partial(self._next_word_item, places[word][1], word, words, surface)
        return self.limit_items("next_word", candidates, dropped)

    def _next_word_item(self, number: int, word: str, alike: list[str], surface: dict[str, str]) -> Item:
        others = sorted((self.hash_rank(f"next_word\x1f{word}", other), other) for other in alike if other != word)
        wrong = [surface[other] for _, other in others[: CHOICES - 1]]
        return self.build_item("next_word", number, [surface[word], *wrong])

    def text_spans(self) -> Iterator[tuple[int, str]]:
        """(number of the first word, text) of stretches of `continuation_words` words, side by side, from the word WORDS_BEFORE on."""
        size, at = self.settings.continuation_words, WORDS_BEFORE
        while at + size <= len(self.text.words):
            if self.text.stands_alone(at):
                start, end = self.text.words[at][0], self.text.words[at + size - 1][1]
                yield at, self.text.text[start:end]
                at += size
            else:
                at += 1

    def is_fit_choice(self, span_text: str) -> bool:
        """Whether a stretch may be a choice for another document: neither wide nor with a special token, as no choice is."""
        is_wide = len(span_text) > CHARACTERS_PER_WORD * self.settings.continuation_words
        return not is_wide and not any(name in span_text for name in SPECIAL)

    def continuation(self) -> TaskItems:
        """The next words among four stretches of as many words from other places of the document. Candidates: stretches.

        None of what the item shows before. An item that lacks wrong choices gets them from other documents (stages/evaluate/items.py).
        """
        dropped, spans = Counter[str](), list[tuple[int, str]]()
        for at, span_text in self.text_spans():
            if len(span_text) > CHARACTERS_PER_WORD * self.settings.continuation_words:
                dropped["wide"] += 1
            else:
                spans.append((at, span_text))
        candidates: dict[int, Callable[[], Item]] = {
            at: partial(self._continuation_item, at, span_text, spans) for at, span_text in spans
        }
        return self.limit_items("continuation", candidates, dropped)

    def _continuation_item(self, at: int, span_text: str, spans: list[tuple[int, str]]) -> Item:
        context_words, size = self.settings.context_words, self.settings.continuation_words
        rest = {span_text.casefold(): span_text}
        for _, other_place, text in sorted(
            (self.hash_rank(f"continuation\x1f{at}", other), other, text) for other, text in spans
        ):
            if not at - context_words - size < other_place < at + size and len(rest) < CHOICES:
                rest.setdefault(text.casefold(), text)
        return self.build_item("continuation", at, list(rest.values()), CHOICES - len(rest))


MAKERS: dict[str, Callable[[Maker], TaskItems]] = {
    "word_order": Maker.word_order,
    "next_word": Maker.next_word,
    "continuation": Maker.continuation,
}
