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
from crawl2llm.filters.decontaminate.ngrams import HashSet, Places, mixed, stretches
from crawl2llm.filters.decontaminate.words import places, words

NGRAM, IDF = "ngram", "idf"
MISSES = 11  # stretches that may be missing between two of a passage: question_max_consecutive_misses of decon's config/default.yaml
NEAR = 50  # words after a question that its answer may stand in: short_answer_window_length there
SHORT_ANSWER, ANSWER_STRETCH, FAR = (
    3,
    3,
    100,
)  # words: short_answer_token_threshold, answer_ngram_size, min_long_answer_window there
IDF_LEAST = 0.3  # scores below are not recorded: every page has stretches such as `which of the following is`
IDF_SEED = 0.15  # share of a question's weight below which nothing else is looked at
QUESTION, ANSWER, SURE = (
    0.75,
    0.25,
    20,
)  # DEFAULT_WEIGHT_QA_*, and the stretches from which a question counts in full: scoring.rs there
PERFECT, LONG, BAR = (
    20,
    50,
    0.8,
)  # words up to which all have to be found, and from which the score has to be BAR: config/default.yaml
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

    def __init__(self, items: Sequence[Item], method: str, n: int, least: int) -> None:
        self.items, self.method = [one for one in items if not one.short], method
        self.known: dict[bytes, int] = {}  # word → number, from 1; 0 is any other word
        self.forms: list[_Form] = []
        self.answers = [self._numbers(one.answer) for one in self.items]
        flat: list[Words] = []
        at = 0
        for number, one in enumerate(self.items):
            for text in one.questions:
                found = self._numbers(text)
                self.forms.append(_Form(number, at, len(found), min(n, least) if one.whole else n))
                flat.append(found)
                at += len(found)
        self.words: Words = np.concatenate(flat) if flat else np.zeros(0, np.int32)
        self.hashes = mixed(np.arange(len(self.known) + 1))
        self.of = {size: self._stretches(size) for size in sorted({form.n for form in self.forms})}
        self.weights, self.totals = self._weights()

    def _numbers(self, text: str) -> Words:
        known = self.known
        return np.array(
            [known.setdefault(word, len(known) + 1) for word in text.encode().split(b" ") if word], np.int32
        )

    def _stretches(self, n: int) -> tuple[HashSet, Places, Places]:
        """(the hashes of all stretches of n words, where those of each begin in the next, the places of the stretches in `words`)."""
        some = [form for form in self.forms if form.n == n]
        # A stretch that begins at one of these ends in the same form.
        at = np.concatenate([np.arange(form.first, form.first + form.length - n + 1) for form in some])
        hashes = stretches(self.hashes[self.words], n)[at]
        order = np.argsort(hashes, kind="stable")
        found = HashSet(hashes)
        return found, np.searchsorted(hashes[order], found.sorted, "left"), at[order]

    def _weights(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(the weight of the stretch at each word, their sum for each form)."""
        self.lengths = np.array([form.length - form.n + 1 for form in self.forms], np.int64)
        self.form_of = np.repeat(np.arange(len(self.forms)), [form.length for form in self.forms]).astype(np.int32)
        weights = np.ones(len(self.words))
        item_of = np.array([form.item for form in self.forms], np.int64)
        for found, starts, at in self.of.values():
            row = np.repeat(np.arange(len(found.sorted)), np.diff(np.append(starts, len(at))))
            pairs = np.unique(np.stack((row, item_of[self.form_of[at]])), axis=1)
            frequency = np.bincount(pairs[0], minlength=len(found.sorted))
            weights[at] = np.log(max(2, len(self.items)) / frequency)[row]
        totals = np.zeros(len(self.forms))
        for number, form in enumerate(self.forms):
            totals[number] = weights[form.first : form.first + form.length - form.n + 1].sum()
        return weights, totals

    def find(self, texts: Sequence[str]) -> list[list[Match]]:
        """The items in each text, those of the highest overlap first; of the same item several where they do not share a word."""
        get = self.known.get
        each = [np.array([get(word, 0) for word in words(text)], np.int32) for text in texts]
        ends = np.cumsum([len(found) + 1 for found in each])
        joined = np.zeros(
            int(ends[-1]) if len(ends) else 0, np.int32
        )  # a 0 after each text, which no stretch goes over
        for found, end in zip(each, ends.tolist(), strict=True):
            joined[end - 1 - len(found) : end - 1] = found
        hits: list[list[tuple[Places, Places]]] = [[] for _ in texts]
        hashes = self.hashes[joined]
        for n, (known, starts, at) in self.of.items():
            where, row = known.find(stretches(hashes, n))
            bounds = np.searchsorted(where, np.concatenate(([0], ends)))
            stops = np.append(starts, len(at))
            for number in np.flatnonzero(np.diff(bounds)).tolist():
                some = slice(bounds[number], bounds[number + 1])
                rows = row[some]
                counts = stops[rows + 1] - stops[rows]
                offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
                here = np.repeat(where[some] - (ends[number] - 1 - len(each[number])), counts)
                there = at[np.repeat(stops[rows], counts) + offset]
                same = np.ones(len(here), bool)
                for step in range(n):  # a hash may be that of other words
                    inside = np.minimum(here + step, len(each[number]) - 1)
                    same &= each[number][inside] == self.words[there + step]
                same &= here + n <= len(each[number])
                hits[number].append((here[same], there[same]))
        return [self._matches(text, found, of) if of else [] for text, found, of in zip(texts, each, hits, strict=True)]

    def _matches(self, text: str, found: Words, hits: list[tuple[Places, Places]]) -> list[Match]:
        here, there = (np.concatenate(part) for part in zip(*hits, strict=True))
        forms = self.form_of[there]
        if self.method == IDF:  # most have too little, wherever they are
            distinct = np.unique(there)
            some, at = np.unique(self.form_of[distinct], return_inverse=True)
            sums = np.bincount(at, self.weights[distinct])
            enough = np.isin(forms, some[sums >= IDF_SEED * self.totals[some]])
            here, there, forms = here[enough], there[enough], forms[enough]
        order = np.lexsort((here, forms))
        here, there, forms = here[order], there[order], forms[order]
        cuts = np.flatnonzero(forms[1:] != forms[:-1]) + 1
        candidates = []
        for group in np.split(np.arange(len(forms)), cuts) if len(forms) else ():
            form = self.forms[forms[group[0]]]
            gaps = np.flatnonzero(np.diff(here[group]) > form.n + MISSES) + 1
            for part in np.split(group, gaps):
                candidates += self._measured(int(forms[part[0]]), here[part], there[part], found)
        return self._kept(text, candidates)

    def _measured(
        self, number: int, here: Places, there: Places, found: Words
    ) -> list[tuple[float, int, int, int, int, bool]]:
        """(overlap, item, words found, first word, word after the last, answered) of one passage; none where it counts for nothing."""
        form = self.forms[number]
        item = self.items[form.item]
        distinct = np.unique(there - form.first)
        covered = np.zeros(form.length + 1, np.int64)
        np.add.at(covered, distinct, 1)
        np.add.at(covered, distinct + form.n, -1)
        count = int(np.count_nonzero(np.cumsum(covered[:-1])))
        first, end = int(here[0]), int(here[-1]) + form.n
        if item.whole and count < form.length:
            return []
        share, stop = _answer(found[end : end + max(FAR, 2 * len(self.answers[form.item]))], self.answers[form.item])
        answered = share >= BAR
        if self.method == NGRAM or item.whole:
            overlap = count / form.length
        else:
            overlap = self._scored(form, number, distinct, share)
            if overlap < IDF_LEAST:
                return []
        return [(overlap, form.item, count, first, end + stop if answered else end, answered)]

    def _scored(self, form: _Form, number: int, distinct: Places, answer: float) -> float:
        """decon's score: question and answer weighted by how much the question tells, and scaled where both are short."""
        total = self.totals[number]
        score = (
            float(self.weights[form.first + distinct].sum() / total)
            if total > 0
            else len(distinct) / self.lengths[number]
        )
        length = len(self.answers[form.item])
        if length:
            sure = min(1.0, 0.5 + 0.5 * self.lengths[number] / SURE)
            score = score * QUESTION * sure + answer * (ANSWER + QUESTION * (1 - sure))
        score = min(1.0, score)
        position = min(1.0, max(0.0, (form.length + length - PERFECT) / (LONG - PERFECT)))
        bar = 1.0 - (1.0 - BAR) * position
        return score if score > 1 - 1e-9 else score * BAR / bar

    def _kept(self, text: str, candidates: list[tuple[float, int, int, int, int, bool]]) -> list[Match]:
        """As matches with places in characters, the best first; of an item those that share no word with a better one."""
        if not candidates:
            return []
        where = places(text)
        taken: dict[int, list[tuple[int, int]]] = {}
        out = []
        for overlap, number, count, first, end, answered in sorted(candidates, key=lambda one: (-one[0], one[1:])):
            if any(first < other and begin < end for begin, other in taken.get(number, ())):
                continue
            taken.setdefault(number, []).append((first, end))
            item = self.items[number]
            start, stop = int(where[first, 0]), int(where[end - 1, 1])
            out.append(Match(item.set, item.id, round(overlap, 6), count, start, stop, answered))
        return out


def _answer(after: Words, answer: Words) -> tuple[float, int]:
    """(how much of an answer the words after a question have, how many words up to its end): a short one word by word, a long one by
    stretches of three words.
    """
    if not len(answer):
        return 0.0, 0
    size = min(len(answer), ANSWER_STRETCH) if len(answer) > SHORT_ANSWER else len(answer)
    window = after[: max(FAR, 2 * len(answer))] if len(answer) > SHORT_ANSWER else after[:NEAR]
    if len(window) < size:
        return 0.0, 0
    wanted = {tuple(one) for one in np.lib.stride_tricks.sliding_window_view(answer, size).tolist()}
    given = [tuple(one) for one in np.lib.stride_tricks.sliding_window_view(window, size).tolist()]
    at = [place for place, one in enumerate(given) if one in wanted]
    last = (at[-1] if len(answer) > SHORT_ANSWER else at[0]) + size if at else 0
    return len(wanted.intersection(given)) / len(wanted), last


def index(items: Sequence[Item], settings: dict[str, Any]) -> Index:
    """The index of items with the settings of decontaminate.index."""
    return Index(items, settings["method"], settings["words"], settings["short_words"])
