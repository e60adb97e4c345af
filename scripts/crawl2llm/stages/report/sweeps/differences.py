"""The differences of settings on one measure, each to main and any two: with the noise of seeds and of documents, and a verdict."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from crawl2llm.stages.report.settings import CompareSettings
from crawl2llm.stages.report.sweeps import noise as noises
from crawl2llm.stages.report.sweeps import verdicts
from crawl2llm.stages.report.sweeps.noise import Noise, Part
from crawl2llm.stages.report.sweeps.resample import Floats, bootstrap_means, bootstrap_variance

POOLED, WELCH = "pooled", "welch"
Row = dict[str, Any]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Measure:
    """A measure of all trainings on the same documents.

    scores: [trainings, documents], sizes: [documents]; a training's value is sum(scores) / sum(sizes). groups: the trainings (rows of
    scores) of each setting, main's first.
    """

    name: str
    scores: Floats
    sizes: Floats
    groups: tuple[tuple[int, ...], ...]
    lower_is_better: bool

    @property
    def values(self) -> Floats:
        """Of each training, [trainings]."""
        values: Floats = self.scores.sum(axis=1) / self.sizes.sum()
        return values

    @property
    def documents(self) -> int:
        return len(self.sizes)


@dataclass
class Comparison:
    """A measure with its resamples; see `settings` and `row`. options: those of report.compare."""

    measured: Measure
    options: CompareSettings

    def __post_init__(self) -> None:
        measure, options = self.measured, self.options
        seed = [options.seed, zlib.crc32(measure.name.encode())]
        draws = bootstrap_means(measure.scores, measure.sizes, options.resamples, seed)
        values = measure.values
        self.by_setting = [[float(values[place]) for place in group] for group in measure.groups]
        self.means = [float(np.mean(setting_values)) for setting_values in self.by_setting]
        self.draws = np.stack([draws[:, list(group)].mean(axis=1) for group in measure.groups], axis=1)
        part = noises.pooled_variance(self.by_setting)
        shared = min(part.variance, noises.document_interaction(draws, measure.groups, measure.documents))
        self.noise = Noise(part.variance, int(part.freedom), shared)

    @property
    def alpha(self) -> float:
        return 1 - self.options.confidence

    def setting_rows(self) -> list[Row]:
        """Of each setting: `mean`, `seeds` (trainings), `deviation` between them (None for one), `stderr_seeds` (by the pooled noise; None
        if there is none), `stderr_documents`.
        """
        out = []
        for place, setting_values in enumerate(self.by_setting):
            is_known = self.noise.freedom > 0
            out.append(
                {
                    "mean": self.means[place],
                    "values": setting_values,
                    "seeds": len(setting_values),
                    "deviation": noises.standard_deviation(setting_values),
                    "stderr_seeds": (self.noise.variance / len(setting_values)) ** 0.5 if is_known else None,
                    "stderr_documents": bootstrap_variance(self.draws[:, place], self.measured.documents) ** 0.5,
                }
            )
        return out

    def error_parts(self, first_place: int, second_place: int) -> tuple[Part | None, Part]:
        """The errors of the difference of two settings: of seeds (None if it is not known), of documents."""
        first, second = self.by_setting[first_place], self.by_setting[second_place]
        numbers = (len(first), len(second))
        draws = self.draws[:, second_place] - self.draws[:, first_place]
        documents = noises.between_documents(draws, self.measured.documents, self.noise, numbers)
        if self.options.noise == WELCH:
            return noises.welch_part(first, second), documents
        return (noises.between_seeds(self.noise, numbers) if self.noise.freedom else None), documents

    def pairs_with_main(self) -> list[Pair]:
        """Every setting with main."""
        return [(0, place) for place in range(1, len(self.means))]

    def all_pairs(self) -> list[Pair]:
        """Any two settings."""
        return list(combinations(range(len(self.means)), 2))

    def difference_row(self, first_place: int, second_place: int, family: int, planned: bool = True) -> Row:
        """The second setting less the first, as one of `family` comparisons; `set_verdicts` gives the verdict.

        Where the noise of seeds is not known, it is `unknown`, and the interval is that of documents alone. planned: also what could be
        seen with these seeds, and how many the difference needs.
        """
        difference = self.means[second_place] - self.means[first_place]
        seeds, documents = self.error_parts(first_place, second_place)
        error = noises.add_parts([seeds, documents]) if seeds else documents
        wide = verdicts.half_width(error, self.alpha)
        # Bonferroni: the strictest level of Holm's, so what is planned with it is not too little.
        corrected_alpha = self.alpha / family
        row: Row = {
            "first": first_place,
            "second": second_place,
            "difference": difference,
            "stderr": noises.standard_error(error),
            "stderr_seeds": noises.standard_error(seeds) if seeds else None,
            "stderr_documents": noises.standard_error(documents),
            "freedom": error.freedom,
            "low": difference - wide,
            "high": difference + wide,
            "family": family,
            "lower_is_better": self.measured.lower_is_better,
            "verdict": verdicts.UNKNOWN,
        }
        if seeds is None:
            return row
        all_wide = verdicts.half_width(error, corrected_alpha)
        row |= {
            "low_of_all": difference - all_wide,
            "high_of_all": difference + all_wide,
            "p": verdicts.p_value(difference, error),
            "verdict": verdicts.UNCLEAR,
        }
        if planned:
            row["smallest"] = verdicts.smallest_visible(error, corrected_alpha, self.options.power)
            row["seeds_needed"] = verdicts.seeds_needed(
                difference,
                lambda number: self.error_with_seeds(seeds, documents, number, (first_place, second_place)),
                corrected_alpha,
                self.options.power,
            )
        return row

    def error_with_seeds(self, seeds: Part, documents: Part, number: int, pair: Pair) -> Part:
        """The error of a difference if every setting had so many seeds. The documents stay, and so does their part."""
        before = sum(1 / len(self.by_setting[place]) for place in pair)
        settings = 2 if self.options.noise == WELCH else len(self.means)
        part = Part(seeds.variance / before * 2 / number, max(1, settings * (number - 1)))
        return noises.add_parts([part, documents])


def set_verdicts(rows: Sequence[Row], confidence: float) -> None:
    """Give the comparisons of one family p-values that are corrected for their number, and verdicts."""
    tested = [row for row in rows if row["verdict"] != verdicts.UNKNOWN]
    for row, corrected in zip(tested, verdicts.holm_corrected([row["p"] for row in tested]), strict=True):
        row["p_corrected"] = corrected
        row["verdict"] = verdicts.verdict(row["difference"], corrected, 1 - confidence, row["lower_is_better"])
