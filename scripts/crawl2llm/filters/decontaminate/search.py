"""Search for the items of evaluation sets in texts: which item, how much of it, and where.

Memory: about 70 bytes for each word of the evaluation sets and their vocabulary, whatever the corpus. Every match of a hash is compared
word by word.

`ngram`: the share of the question's words that lie in stretches of n words (13: GPT-3, arXiv:2005.14165, appendix C) that the text has too.
`idf`: the score of AI2's decon, used for Dolma 3 (github.com/allenai/decon, doc/simple-details.md, src/detect/scoring.rs):
the question's stretches weighted by ln(items / items that have it), the answer near it, and a higher bar for short items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl2llm.filters.decontaminate.items import Item
from crawl2llm.filters.decontaminate.ngrams import HashSet, Places, hash_numbers, hash_stretches
from crawl2llm.filters.decontaminate.words import split_words, word_spans

NGRAM, IDF = "ngram", "idf"
MOST_MISSES = 11  # stretches that may be missing between two of a passage: question_max_consecutive_misses of decon's config/default.yaml
SHORT_ANSWER_WINDOW = 50  # words after a question that its answer may stand in: short_answer_window_length there
SHORT_ANSWER = 3  # words: short_answer_token_threshold there
ANSWER_STRETCH = 3  # words: answer_ngram_size there
LONG_ANSWER_WINDOW = 100  # words: min_long_answer_window there
IDF_LEAST = 0.3  # scores below are not recorded: every page has stretches such as `which of the following is`
IDF_SEED = 0.15  # share of a question's weight below which nothing else is looked at
QUESTION, ANSWER = 0.75, 0.25  # weights: DEFAULT_WEIGHT_QA_* of scoring.rs there
FULL_WEIGHT_STRETCHES = 20  # stretches from which a question counts in full: scoring.rs there
PERFECT_WORDS = 20  # words up to which all have to be found: config/default.yaml there
LONG_WORDS = 50  # words from which the score has to be LONG_BAR: config/default.yaml there
LONG_BAR = 0.8  # a score
Words = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Match:
    """An item in a text. overlap: 0 to 1; words: of the question that were found; start, end: characters of the text, answer included."""

    set: str
    item: str
    overlap: float
    words: int
    start: int
    end: int
    answered: bool  # the right answer follows


@dataclass(frozen=True)
class _Form:
    """One way to write an item's question. first: the number of its first word among all; n: words of a stretch."""

    item: int
    first: int
    length: int
    n: int


class Index:
    """Items ready to be searched for. method, words, short_words: keys of decontaminate.index."""

    def __init__(self, items: Sequence[Item], method: str, n: int, least_words: int) -> None:
        self.items, self.method = [item for item in items if not item.short], method
        self.word_numbers: dict[bytes, int] = {}  # word → number, from 1; 0 is any other word
        self.forms: list[_Form] = []
        self.answers = [self._numbers_of_words(item.answer) for item in self.items]
        flat: list[Words] = []
        at = 0
        for number, item in enumerate(self.items):
            for text in item.questions:
                numbers = self._numbers_of_words(text)
                self.forms.append(_Form(number, at, len(numbers), min(n, least_words) if item.whole else n))
                flat.append(numbers)
                at += len(numbers)
        self.words: Words = np.concatenate(flat) if flat else np.zeros(0, np.int32)
        self.hashes = hash_numbers(np.arange(len(self.word_numbers) + 1))
        self.stretches_by_length = {
            size: self._index_stretches(size) for size in sorted({form.n for form in self.forms})
        }
        self.weights, self.totals = self._weigh_stretches()

    def _numbers_of_words(self, text: str) -> Words:
        word_numbers = self.word_numbers
        return np.array(
            [word_numbers.setdefault(word, len(word_numbers) + 1) for word in text.encode().split(b" ") if word],
            np.int32,
        )

    def _index_stretches(self, n: int) -> tuple[HashSet, Places, Places]:
        """(the hashes of all stretches of n words, where those of each begin in the next, the places of the stretches in `words`)."""
        sized_forms = [form for form in self.forms if form.n == n]
        # A stretch that begins at one of these ends in the same form.
        word_places = np.concatenate([np.arange(form.first, form.first + form.length - n + 1) for form in sized_forms])
        hashes = hash_stretches(self.hashes[self.words], n)[word_places]
        order = np.argsort(hashes, kind="stable")
        hash_set = HashSet(hashes)
        return hash_set, np.searchsorted(hashes[order], hash_set.sorted, "left"), word_places[order]

    def _weigh_stretches(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(the weight of the stretch at each word, their sum for each form)."""
        self.lengths = np.array([form.length - form.n + 1 for form in self.forms], np.int64)
        self.form_of = np.repeat(np.arange(len(self.forms)), [form.length for form in self.forms]).astype(np.int32)
        weights = np.ones(len(self.words))
        item_of = np.array([form.item for form in self.forms], np.int64)
        for hash_set, starts, at in self.stretches_by_length.values():
            row = np.repeat(np.arange(len(hash_set.sorted)), np.diff(np.append(starts, len(at))))
            pairs = np.unique(np.stack((row, item_of[self.form_of[at]])), axis=1)
            frequency = np.bincount(pairs[0], minlength=len(hash_set.sorted))
            weights[at] = np.log(max(2, len(self.items)) / frequency)[row]
        totals = np.zeros(len(self.forms))
        for number, form in enumerate(self.forms):
            totals[number] = weights[form.first : form.first + form.length - form.n + 1].sum()
        return weights, totals

    def find_matches(self, texts: Sequence[str]) -> list[list[Match]]:
        """The items in each text, those of the highest overlap first; of the same item several where they do not share a word."""
        get = self.word_numbers.get
        numbers_by_text = [np.array([get(word, 0) for word in split_words(text)], np.int32) for text in texts]
        ends = np.cumsum([len(numbers) + 1 for numbers in numbers_by_text])
        joined = np.zeros(
            int(ends[-1]) if len(ends) else 0, np.int32
        )  # a 0 after each text, which no stretch goes over
        for numbers, end in zip(numbers_by_text, ends.tolist(), strict=True):
            joined[end - 1 - len(numbers) : end - 1] = numbers
        hits: list[list[tuple[Places, Places]]] = [[] for _ in texts]
        hashes = self.hashes[joined]
        for n, (hash_set, starts, at) in self.stretches_by_length.items():
            hit_places, row = hash_set.find_places(hash_stretches(hashes, n))
            bounds = np.searchsorted(hit_places, np.concatenate(([0], ends)))
            stops = np.append(starts, len(at))
            for number in np.flatnonzero(np.diff(bounds)).tolist():
                text_slice = slice(bounds[number], bounds[number + 1])
                rows = row[text_slice]
                counts = stops[rows + 1] - stops[rows]
                offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
                text_places = np.repeat(
                    hit_places[text_slice] - (ends[number] - 1 - len(numbers_by_text[number])), counts
                )
                item_places = at[np.repeat(stops[rows], counts) + offset]
                same = np.ones(len(text_places), bool)
                for step in range(n):  # a hash may be that of other words
                    inside = np.minimum(text_places + step, len(numbers_by_text[number]) - 1)
                    same &= numbers_by_text[number][inside] == self.words[item_places + step]
                same &= text_places + n <= len(numbers_by_text[number])
                hits[number].append((text_places[same], item_places[same]))
        return [
            self._text_matches(text, numbers, text_hits) if text_hits else []
            for text, numbers, text_hits in zip(texts, numbers_by_text, hits, strict=True)
        ]

    def _text_matches(self, text: str, numbers: Words, hits: list[tuple[Places, Places]]) -> list[Match]:
        text_places, item_places = (np.concatenate(part) for part in zip(*hits, strict=True))
        forms = self.form_of[item_places]
        if self.method == IDF:  # most have too little, wherever they are
            distinct = np.unique(item_places)
            found_forms, at = np.unique(self.form_of[distinct], return_inverse=True)
            sums = np.bincount(at, self.weights[distinct])
            enough = np.isin(forms, found_forms[sums >= IDF_SEED * self.totals[found_forms]])
            text_places, item_places, forms = text_places[enough], item_places[enough], forms[enough]
        order = np.lexsort((text_places, forms))
        text_places, item_places, forms = text_places[order], item_places[order], forms[order]
        cuts = np.flatnonzero(forms[1:] != forms[:-1]) + 1
        candidates = []
        for group in np.split(np.arange(len(forms)), cuts) if len(forms) else ():
            form = self.forms[forms[group[0]]]
            gaps = np.flatnonzero(np.diff(text_places[group]) > form.n + MOST_MISSES) + 1
            for part in np.split(group, gaps):
                candidates += self._measure_passage(int(forms[part[0]]), text_places[part], item_places[part], numbers)
        return self._best_matches(text, candidates)

    def _measure_passage(
        self, number: int, text_places: Places, item_places: Places, numbers: Words
    ) -> list[tuple[float, int, int, int, int, bool]]:
        """(overlap, item, words found, first word, word after the last, answered) of one passage; none if it counts for nothing."""
        form = self.forms[number]
        item = self.items[form.item]
        distinct = np.unique(item_places - form.first)
        covered = np.zeros(form.length + 1, np.int64)
        np.add.at(covered, distinct, 1)
        np.add.at(covered, distinct + form.n, -1)
        count = int(np.count_nonzero(np.cumsum(covered[:-1])))
        first, end = int(text_places[0]), int(text_places[-1]) + form.n
        if item.whole and count < form.length:
            return []
        share, stop = _answer_share(
            numbers[end : end + max(LONG_ANSWER_WINDOW, 2 * len(self.answers[form.item]))], self.answers[form.item]
        )
        answered = share >= LONG_BAR
        if self.method == NGRAM or item.whole:
            overlap = count / form.length
        else:
            overlap = self._idf_score(form, number, distinct, share)
            if overlap < IDF_LEAST:
                return []
        return [(overlap, form.item, count, first, end + stop if answered else end, answered)]

    def _idf_score(self, form: _Form, number: int, distinct: Places, answer: float) -> float:
        """decon's score: question and answer weighted by how much the question tells, and scaled where both are short."""
        total = self.totals[number]
        score = (
            float(self.weights[form.first + distinct].sum() / total)
            if total > 0
            else len(distinct) / self.lengths[number]
        )
        length = len(self.answers[form.item])
        if length:
            sure = min(1.0, 0.5 + 0.5 * self.lengths[number] / FULL_WEIGHT_STRETCHES)
            score = score * QUESTION * sure + answer * (ANSWER + QUESTION * (1 - sure))
        score = min(1.0, score)
        position = min(1.0, max(0.0, (form.length + length - PERFECT_WORDS) / (LONG_WORDS - PERFECT_WORDS)))
        bar = 1.0 - (1.0 - LONG_BAR) * position
        return score if score > 1 - 1e-9 else score * LONG_BAR / bar

    def _best_matches(self, text: str, candidates: list[tuple[float, int, int, int, int, bool]]) -> list[Match]:
        """As matches with places in characters, the best first; of an item those that share no word with a better one."""
        if not candidates:
            return []
        spans_by_word = word_spans(text)
        taken_spans: dict[int, list[tuple[int, int]]] = {}
        out = []
        for overlap, number, count, first, end, answered in sorted(
            candidates, key=lambda candidate: (-candidate[0], candidate[1:])
        ):
            if any(first < other_end and begin < end for begin, other_end in taken_spans.get(number, ())):
                continue
            taken_spans.setdefault(number, []).append((first, end))
            item = self.items[number]
            start, stop = int(spans_by_word[first, 0]), int(spans_by_word[end - 1, 1])
            out.append(Match(item.set, item.id, round(overlap, 6), count, start, stop, answered))
        return out


def _answer_share(after: Words, answer: Words) -> tuple[float, int]:
    """(how much of an answer the words after a question have, how many words up to its end): a short one word by word, a long one by
    stretches of three words.
    """
    if not len(answer):
        return 0.0, 0
    is_long = len(answer) > SHORT_ANSWER
    size = min(len(answer), ANSWER_STRETCH) if is_long else len(answer)
    window = after[: max(LONG_ANSWER_WINDOW, 2 * len(answer))] if is_long else after[:SHORT_ANSWER_WINDOW]
    if len(window) < size:
        return 0.0, 0
    answer_stretches = {tuple(stretch) for stretch in np.lib.stride_tricks.sliding_window_view(answer, size).tolist()}
    window_stretches = [tuple(stretch) for stretch in np.lib.stride_tricks.sliding_window_view(window, size).tolist()]
    at = [place for place, stretch in enumerate(window_stretches) if stretch in answer_stretches]
    last = (at[-1] if is_long else at[0]) + size if at else 0
    return len(answer_stretches.intersection(window_stretches)) / len(answer_stretches), last


def build_index(items: Sequence[Item], settings: dict[str, Any]) -> Index:
    """The index of items with the settings of decontaminate.index."""
    return Index(items, settings["method"], settings["words"], settings["short_words"])
