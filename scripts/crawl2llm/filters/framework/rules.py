"""The rules of a filter as data: a measure and the threshold that it is compared with, or a text that speaks against a document.

The verdicts (select.py), the limits on the pages of report.inspect, and the other thresholds of report.whatif all read the same rules.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from crawl2llm.core.settings import Settings
from crawl2llm.filters.framework.columns import Columns, Numbers, Truths
from crawl2llm.formats.verdicts import FailedRule

Comparison = Literal["<", "<=", ">", ">="]
COMPARE: dict[str, Callable[[Numbers, Numbers], Truths]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OFF = math.nan  # a threshold that drops nothing


def value_at(settings: Settings, key: str) -> Any:
    """The value of a key, which is dotted in a section: `gopher_quality.words_min`."""
    return attrgetter(key)(settings)


def no_threshold(label: str) -> float | None:
    """For a rule whose threshold is the same for all languages."""
    return None


@dataclass(frozen=True)
class Limit:
    """What a rule compares, each (documents,): what was measured, NaN if the rule does not apply, and the threshold.

    drops: how the value of a document that it drops stands to the threshold.
    """

    rule: str
    value: Numbers
    threshold: Numbers
    drops: Comparison

    def failing_documents(self) -> Truths:
        """Which documents it drops."""
        return COMPARE[self.drops](self.value, self.threshold)

    def passing_documents(self) -> Truths:
        """Which documents pass; not those that it does not apply to."""
        return ~np.isnan(self.value) & ~self.failing_documents()


@dataclass(frozen=True)
class Rule:
    """A rule that compares a number.

    measure: a column of the signals, or what computes it of them; a document without a value passes.
    drops: how a value that fails stands to the threshold.
    threshold: a key of the filter's `select`, dotted in a section of it (null: the rule is off), or a number that no key changes.
    when: the documents that it is for; None: all.
    by_language: the threshold of a language in place of that for all; OFF: it drops nothing; None: the language has no other.
    looser: as `by_language`, of a threshold that holds if it drops less than that for all does.
    about: what a reader of report.whatif has to know, in sentences.
    also: (column, key): it drops only documents whose number in this column is at least this key's.
    step: the step of the filter that measured it.

    Several rules of a filter may have one name, for documents or thresholds of different kinds: the verdict lists it once.
    """

    name: str
    measure: str | Callable[[Columns], Numbers]
    drops: Comparison
    threshold: str | float
    when: Callable[[Columns], Truths] | None = None
    by_language: Callable[[str], float | None] = no_threshold
    looser: Callable[[str], float | None] = no_threshold
    about: Sequence[str] = ()
    also: tuple[str, str] | None = None
    step: str = "score"

    @property
    def low(self) -> bool:
        """Whether it drops small values."""
        return self.drops in ("<", "<=")

    def threshold_for_all(self, settings: Settings) -> float | None:
        """The threshold of a language without one of its own; None: the rule is off."""
        number: float | None = value_at(settings, self.threshold) if isinstance(self.threshold, str) else self.threshold
        return number

    def threshold_for(self, label: str, settings: Settings) -> float:
        """The threshold of a language, or OFF."""
        for_all, of_language, looser = self.threshold_for_all(settings), self.by_language(label), self.looser(label)
        if of_language is not None:
            return of_language
        if for_all is None or (looser is not None and math.isnan(looser)):
            return OFF
        if looser is None:
            return for_all
        return min(for_all, looser) if self.low else max(for_all, looser)

    def values(self, columns: Columns) -> Numbers:
        """What was measured, of every document."""
        return columns.values(self.measure) if isinstance(self.measure, str) else self.measure(columns)

    def applies(self, columns: Columns, settings: Settings) -> Truths:
        """Which documents it is for."""
        applies = np.ones(len(columns), bool) if self.when is None else self.when(columns)
        if self.also:
            name, key = self.also
            applies = applies & (columns.values(name) >= value_at(settings, key))
        return applies

    def limit(self, columns: Columns, settings: Settings) -> Limit:
        """What it compares under the settings of the filter's `select`."""
        threshold = columns.by_label(lambda label: self.threshold_for(label, settings))
        applies = ~np.isnan(threshold)
        if not applies.any():  # what it measures may not be there
            return Limit(self.name, np.full(len(columns), np.nan), threshold, self.drops)
        applies &= self.applies(columns, settings)
        return Limit(self.name, np.where(applies, self.values(columns), np.nan), threshold, self.drops)

    def failures(self, columns: Columns, settings: Settings) -> Iterator[tuple[int, FailedRule]]:
        """(place, why) of the documents that it drops."""
        limit = self.limit(columns, settings)
        for place in np.flatnonzero(limit.failing_documents()).tolist():
            yield place, FailedRule(self.name, float(limit.value[place]), float(limit.threshold[place]))

    def movable_values(self, columns: Columns, settings: Settings) -> tuple[Numbers, Truths]:
        """(values, fixed): what another threshold for all is compared with, NaN if none decides; and which documents no such threshold
        moves: those that the rule is not for, and those of languages with a threshold of their own.
        """
        values, fixed = self.values(columns), ~self.applies(columns, settings)
        fixed |= columns.by_label(lambda label: self.by_language(label) is not None) == 1
        looser = columns.by_label(lambda label: math.nan if (number := self.looser(label)) is None else number)
        has_looser = columns.by_label(lambda label: self.looser(label) is not None) == 1
        spared = has_looser & (np.isnan(looser) | ~COMPARE[self.drops](values, looser))
        return np.where(fixed | spared, np.nan, values), fixed


def entry_itself(entry: str | None) -> str | None:
    """For a rule that drops every document in whose column something stands."""
    return entry


@dataclass(frozen=True)
class Match:
    """A rule that compares no number.

    find: the text in a column of the signals → what speaks against the document, or None: it passes. when: as of `Rule`.
    """

    name: str
    column: str
    find: Callable[[str | None], str | None] = entry_itself
    when: Callable[[Columns], Truths] | None = None

    def failures(self, columns: Columns, settings: Settings) -> Iterator[tuple[int, FailedRule]]:
        """(place, why) of the documents that it drops."""
        applies = None if self.when is None else self.when(columns)
        for place, text in enumerate(columns.column(self.column).to_pylist()):
            if (applies is None or applies[place]) and (detail := self.find(text)) is not None:
                yield place, FailedRule(self.name, detail=detail)


Rules = Sequence[Rule | Match]


def failed_rules(rules: Rules, columns: Columns, settings: Settings) -> list[list[FailedRule]]:
    """The rules that each document fails, in their order; the first of several with one name."""
    failed: list[list[FailedRule]] = [[] for _ in range(len(columns))]
    for rule in rules:
        for place, failure in rule.failures(columns, settings):
            if rule.name not in (earlier.rule for earlier in failed[place]):
                failed[place].append(failure)
    return failed
