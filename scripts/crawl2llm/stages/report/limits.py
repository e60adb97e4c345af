"""What the rules of every filter compare, of the documents that they keep too: rule, measure, threshold.

A verdict names the value and the threshold of what was dropped alone. Of a kept document the value is in the filter's signals and the
threshold in its settings, or in a manifest where it was found from the data. A rule that compares no number has no limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain.config_schema import fill_defaults
from crawl2llm.chain.heuristics_rules import LanguageRules
from crawl2llm.core import language_codes
from crawl2llm.filters.heuristics import thresholds as calibrated
from crawl2llm.filters.language.select import COMPARED_RULES, thresholds_by_language
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.quality.select import pareto_draw
from crawl2llm.filters.sourcecode.select import COMPARED_MEASURES
from crawl2llm.formats.documents import open_parquet
from crawl2llm.formats.run_records import Run, table_of

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Limit:
    """Of the documents of a shard, each (documents,): what a rule measured, NaN where it does not apply, and its threshold.

    low: it drops what is below, else what is above. equal: what is equal to the threshold is dropped too.
    """

    rule: str
    value: Numbers
    threshold: Numbers
    low: bool
    equal: bool = False

    def passing_documents(self) -> npt.NDArray[np.bool_]:
        """Which documents pass the rule, by their numbers; not those that it does not apply to."""
        beyond = self.value < self.threshold if self.low else self.value > self.threshold
        return ~np.isnan(self.value) & ~beyond & ~(self.equal & (self.value == self.threshold))


def number_column(table: pa.Table, name: str) -> Numbers:
    """A column of numbers as float64, null as NaN."""
    numbers = table[name].combine_chunks().cast(pa.float64())
    return np.asarray(pc.fill_null(numbers, np.nan).to_numpy(zero_copy_only=False), np.float64)


def column_limit(
    table: pa.Table, name: str, rule: str, threshold: float | Numbers, low: bool, equal: bool = False
) -> Limit:
    """The limit of a rule that compares a column; threshold: one for all, or that of each document."""
    value = number_column(table, name)
    return Limit(rule, value, np.broadcast_to(np.asarray(threshold, np.float64), value.shape), low, equal)


class Shard:
    """The signals of one shard of a filter, in the order of its verdicts.

    ids: of the verdicts. A table that does not have the same documents in the same order is brought into it.
    """

    def __init__(self, run: Run, filter_: str, shard: str, ids: pa.ChunkedArray) -> None:
        self.run, self.filter, self.shard, self.ids = run, filter_, shard, ids

    def table(self, step: str, columns: list[str] | None = None) -> pa.Table | None:
        """The rows of a step's table of this shard, one for each verdict (null where it has none); None without such a table.

        columns: those that it has of these; None: all.
        """
        path = table_of(self.run, step, self.shard)
        if path is None:
            return None
        with open_parquet(path) as file:
            names = [name for name in columns or file.schema_arrow.names if name in file.schema_arrow.names]
            table = file.read(list(dict.fromkeys(["id", *names])))
        if table["id"].equals(self.ids):
            return table
        return table.take(pc.index_in(self.ids, value_set=table["id"].combine_chunks()))

    def languages(self) -> list[str]:
        """The language of each document; "" where language.score did not see it."""
        labels = self.table("language.score", ["language"])
        return [""] * len(self.ids) if labels is None else [name or "" for name in labels["language"].to_pylist()]

    def fact(self, step: str, key: str) -> Any:
        """A value of a step's summary, of this shard's task or of its only one."""
        manifest = self.run.task(step, self.shard) or self.run.task(step, "")
        return manifest.summary.get(key) if manifest else None


def _edit_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    """Filters that take parts out (filters/edit_filter.py)."""
    if (table := shard.table(f"{shard.filter}.score")) is None:
        return
    untouched = number_column(table, "taken") == 0
    for name, least in (("characters", 1), ("words", settings["words_min"])):
        part_limit = column_limit(table, name, f"{name}_min", least, True)
        yield Limit(part_limit.rule, np.where(untouched, np.nan, part_limit.value), part_limit.threshold, True)
    if settings["removed_max"] is not None:
        yield column_limit(table, "removed", "removed_max", settings["removed_max"], False)


def _url_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    table = shard.table("url.score", ["words"])
    if table is not None and settings["words_max"] is not None:
        yield column_limit(table, "words", "words", settings["words_max"], False)


def _language_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("language.score", ["language", "score"])) is None:
        return
    own_limits, threshold = thresholds_by_language(settings), settings["threshold"]
    limit_by_label = {
        name: language_codes.lookup_label(own_limits, name) for name in pc.unique(table["language"]).to_pylist()
    }
    least = np.array(
        [threshold if limit_by_label[name] is None else limit_by_label[name] for name in table["language"].to_pylist()],
        float,
    )
    yield column_limit(table, "score", "score", least, True)
    compared_table = shard.table("language.compare", list(COMPARED_RULES))
    for measure, rule in COMPARED_RULES.items() if compared_table is not None else ():
        if settings.get(rule) is not None:
            yield column_limit(compared_table, measure, rule, settings[rule], True)


def _multilingual_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("multilingual.score")) is None:
        return
    yield column_limit(table, "characters", "characters_min", settings["characters_min"], True)
    if settings["foreign_max"] is not None:
        yield column_limit(table, "foreign", "foreign_max", settings["foreign_max"], False)


def _heuristics_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("heuristics.score")) is None:
        return
    calibrations = [manifest.path for manifest in shard.run.manifests_of("heuristics.calibrate") if manifest.path]
    rules_by_language = LanguageRules(settings, calibrated.read_thresholds(calibrations))
    languages, places = np.unique(np.array(shard.languages(), dtype=str), return_inverse=True)
    active = [{rule.name: rule for rule in rules_by_language.rules_of(str(language))} for language in languages]
    for name in rules_by_language.rule_names():
        rules = [active_rules.get(name) for active_rules in active]
        if first_rule := next(filter(None, rules), None):
            # What no rule of the document's language compares is NaN.
            threshold = np.array([np.nan if rule is None else rule.threshold for rule in rules], float)[places]
            value = np.where(np.isnan(threshold), np.nan, number_column(table, first_rule.measure))
            yield Limit(name, value, threshold, first_rule.low)


def _lines_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("lines.score")) is None:
        return
    yield column_limit(table, "characters", "characters_min", 1, True)
    yield column_limit(table, "sentences", "sentences_min", settings["sentences_min"], True)
    if settings["flagged_max"] is not None:
        yield column_limit(table, "flagged", "flagged_max", settings["flagged_max"], False)


def _licence_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    table = shard.table("licence.score", ["beside"])
    if table is not None and settings["beside_max"] is not None:
        yield column_limit(table, "beside", "beside", settings["beside_max"], False)


def _sourcecode_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("sourcecode.score")) is None:
        return
    is_code, is_data = pc.is_valid(table["extension"]).to_numpy(), number_column(table, "data") == 1
    for name in COMPARED_MEASURES:
        low = name.startswith("alpha")
        rule = f"{name}_{'min' if low else 'max'}"
        usual = np.nan if settings[rule] is None else settings[rule]
        of_data = {"longest_line": settings["data_longest_line_max"], "mean_line": np.nan}.get(name, usual)
        threshold = np.where(is_data, np.nan if of_data is None else of_data, usual)
        value = np.where(is_code & ~np.isnan(threshold), number_column(table, name), np.nan)
        yield Limit(rule, value, threshold, low)


def _toxicity_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("toxicity.score")) is None:
        return
    terms, words = number_column(table, "terms"), number_column(table, "words")
    if settings["terms_max"] is not None:
        yield column_limit(table, "terms", "terms", settings["terms_max"], False)
    if settings["share_max"] is not None:
        share = np.where(words > 0, number_column(table, "hits") / np.maximum(words, 1), 0.0)
        share = np.where(terms >= settings["share_terms_min"], share, np.nan)
        yield Limit("share", share, np.full(len(share), float(settings["share_max"])), False)
    value, most = np.full(len(terms), np.nan), np.full(len(terms), np.nan)
    rows = zip(table["classifiers"].to_pylist(), table["probabilities"].to_pylist(), strict=True)
    for row, (names, probabilities) in enumerate(rows):
        limits = [settings["thresholds"].get(name, settings["threshold"]) for name in names or []]
        # Of several classifiers the one that is nearest to dropping it.
        for probability, threshold in zip(probabilities or [], limits, strict=True):
            if np.isnan(value[row]) or probability - threshold > value[row] - most[row]:
                value[row], most[row] = probability, threshold
    yield Limit("classifier", value, most, False)


def _pii_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("pii.score")) is None:
        return
    for kind in KINDS:
        if settings["actions"].get(kind) == "drop":
            yield column_limit(table, kind, kind, settings["drop_from"], False, equal=True)
    if settings["total_max"] is not None:
        counted = [number_column(table, kind) for kind in KINDS if settings["actions"].get(kind) != "keep"]
        total = np.sum(counted, axis=0) if counted else np.zeros(len(table))
        yield Limit("total_max", total, np.full(len(total), float(settings["total_max"])), False)


def _quality_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    signals = "quality.combine" if shard.run.manifests_of("quality.combine") else "quality.score"
    if (table := shard.table(signals, ["score", "curated"])) is None:
        return
    method, by_language = settings["method"], shard.fact("quality.select", "by_language")
    if method == "pareto":
        threshold = 1.0 - np.array(
            [pareto_draw(settings["seed"], name, settings["alpha"]) for name in table["id"].to_pylist()]
        )
    elif by_language:
        # A language with few documents is in a group with others, which the summary lists.
        group = {member: name for name, facts in by_language.items() for member in facts.get("languages", [name])}
        cuts = [by_language.get(group.get(language, ""), {}).get("threshold") for language in shard.languages()]
        threshold = np.array([np.nan if cut is None else cut for cut in cuts], float)
    else:
        score_threshold = shard.fact("quality.select", "threshold")
        threshold = np.full(len(table), np.nan if score_threshold is None else score_threshold)
    # Curated documents are not judged.
    value = np.where(
        (number_column(table, "curated") == 1) | np.isnan(threshold), np.nan, number_column(table, "score")
    )
    yield Limit(method, value, threshold, True, equal=method == "pareto")


def _decontaminate_limits(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    table, most = shard.table("decontaminate.score", ["overlap"]), shard.fact("decontaminate.select", "overlap_max")
    if table is not None and most is not None:
        yield column_limit(table, "overlap", "overlap_max", most, False)


LIMITS_BY_FILTER: dict[str, Callable[[Shard, dict[str, Any]], Iterator[Limit]]] = {
    "url": _url_limits,
    "language": _language_limits,
    "multilingual": _multilingual_limits,
    "heuristics": _heuristics_limits,
    "lines": _lines_limits,
    "boilerplate": _edit_limits,
    "licence": _licence_limits,
    "sourcecode": _sourcecode_limits,
    "toxicity": _toxicity_limits,
    "pii": _pii_limits,
    "paragraphs": _edit_limits,
    "substrings": _edit_limits,
    "quality": _quality_limits,
    "decontaminate": _decontaminate_limits,
}  # dedup compares pairs: stages/report/inspect_sampling.py


def filter_limits(
    run: Run, filter_: str, shard: str, ids: pa.ChunkedArray, settings: dict[str, Any]
) -> Iterator[Limit]:
    """The limits of a filter's rules on a shard's documents, one rule held at a time. ids: of its verdicts; settings: of its select."""
    if filter_ in LIMITS_BY_FILTER:
        yield from LIMITS_BY_FILTER[filter_](
            Shard(run, filter_, shard, ids), fill_defaults(f"{filter_}.select", settings)
        )
