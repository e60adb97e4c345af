"""Drop the documents with listed words, or that a classifier says are toxic; those of curated sources and of sources that skip it stay.

Rules: `terms` (more different listed words than `terms_max`), `share` (hits by words above `share_max`, of at least `share_terms_min`
different ones) and `classifier` (a probability above its threshold; `detail` names the classifier).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from crawl2llm.core.phrases import list_sentence
from crawl2llm.core.settings import Settings
from crawl2llm.filters.framework import select
from crawl2llm.filters.framework.columns import Columns, Numbers, Truths
from crawl2llm.filters.framework.rules import Limit, Rule, Rules, value_at
from crawl2llm.filters.toxicity.settings import SelectSettings
from crawl2llm.formats.verdicts import FailedRule


def hit_share(columns: Columns) -> Numbers:
    """Hits of listed words by words; 0 of a text without any."""
    words = columns.values("words")
    return np.divide(columns.values("hits"), words, out=np.zeros(len(columns)), where=words > 0)


@dataclass(frozen=True)
class ClassifierRule(Rule):
    """A rule with a number, and maybe a threshold, for each of several classifiers. thresholds: by the classifier's name."""

    thresholds: Mapping[str, float] = field(default_factory=dict)

    def probabilities(self, columns: Columns) -> tuple[npt.NDArray[np.int64], list[str], Numbers]:
        """(place of the document, name, probability) of each classifier on each document."""
        lists = columns.column("probabilities")
        names = pc.list_flatten(columns.column("classifiers")).to_pylist()
        return (
            pc.list_parent_indices(lists).to_numpy(),
            names,
            pc.list_flatten(lists).to_numpy(zero_copy_only=False).astype(float),
        )

    def comparisons(self, columns: Columns, settings: Settings) -> Iterator[tuple[int, str, float, float]]:
        """(place of the document, name, probability, threshold) of each classifier on each document."""
        for_all = value_at(settings, "threshold")
        for place, name, probability in zip(*self.probabilities(columns), strict=True):
            yield int(place), name, float(probability), self.thresholds.get(name, for_all)

    def limit(self, columns: Columns, settings: Settings) -> Limit:
        """Of several classifiers that which is nearest to dropping the document."""
        value, most = np.full(len(columns), np.nan), np.full(len(columns), np.nan)
        for place, _, probability, threshold in self.comparisons(columns, settings):
            if np.isnan(value[place]) or probability - threshold > value[place] - most[place]:
                value[place], most[place] = probability, threshold
        return Limit(self.name, value, most, self.drops)

    def failures(self, columns: Columns, settings: Settings) -> Iterator[tuple[int, FailedRule]]:
        """Of several classifiers the first that drops the document."""
        for place, name, probability, threshold in self.comparisons(columns, settings):
            if probability > threshold:
                yield place, FailedRule(self.name, probability, threshold, name)

    def movable_values(self, columns: Columns, settings: Settings) -> tuple[Numbers, Truths]:
        """The highest of classifiers without a threshold of their own; a document that another one drops is not moved."""
        places, names, probabilities = self.probabilities(columns)
        thresholds = np.array([self.thresholds.get(name, np.nan) for name in names], float)
        highest, dropped = np.full(len(columns), -np.inf), np.zeros(len(columns), bool)
        np.maximum.at(highest, places[np.isnan(thresholds)], probabilities[np.isnan(thresholds)])
        dropped[places[probabilities > thresholds]] = True
        return np.where(np.isneginf(highest) | dropped, np.nan, highest), dropped


def rules(settings: SelectSettings) -> Rules:
    """The rules under the settings of `toxicity.select`, in the order in which the first that fails gives the reason."""
    thresholds = settings.thresholds
    about = list_sentence("Classifiers with a threshold of their own keep it", sorted(thresholds))
    return [
        Rule("terms", "terms", ">", "terms_max"),
        Rule("share", hit_share, ">", "share_max", also=("terms", "share_terms_min")),
        ClassifierRule("classifier", "probabilities", ">", "threshold", about=about, thresholds=thresholds),
    ]


main = select.program("toxicity.select", __doc__, rules)

if __name__ == "__main__":
    raise SystemExit(main())
