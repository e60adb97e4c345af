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

from crawl2llm.chain.config_schema import completed
from crawl2llm.chain.heuristics_rules import ByLanguage
from crawl2llm.core import language_codes
from crawl2llm.filters.heuristics import thresholds as calibrated
from crawl2llm.filters.language.select import COMPARED, own_thresholds
from crawl2llm.filters.pii.kinds import KINDS
from crawl2llm.filters.quality.select import pareto
from crawl2llm.filters.sourcecode.select import MEASURED
from crawl2llm.formats.documents import opened
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

    def passed(self) -> npt.NDArray[np.bool_]:
        """Which documents pass the rule, by their numbers; not those that it does not apply to."""
        beyond = self.value < self.threshold if self.low else self.value > self.threshold
        return ~np.isnan(self.value) & ~beyond & ~(self.equal & (self.value == self.threshold))


def column(table: pa.Table, name: str) -> Numbers:
    """A column of numbers as float64, null as NaN."""
    found = table[name].combine_chunks().cast(pa.float64())
    return np.asarray(pc.fill_null(found, np.nan).to_numpy(zero_copy_only=False), np.float64)


def limit(table: pa.Table, name: str, rule: str, threshold: float | Numbers, low: bool, equal: bool = False) -> Limit:
    """The limit of a rule that compares a column; threshold: one for all, or that of each document."""
    value = column(table, name)
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
        with opened(path) as file:
            names = [name for name in columns or file.schema_arrow.names if name in file.schema_arrow.names]
            table = file.read(list(dict.fromkeys(["id", *names])))
        if table["id"].equals(self.ids):
            return table
        return table.take(pc.index_in(self.ids, value_set=table["id"].combine_chunks()))

    def languages(self) -> list[str]:
        """The language of each document; "" where language.score did not see it."""
        found = self.table("language.score", ["language"])
        return [""] * len(self.ids) if found is None else [name or "" for name in found["language"].to_pylist()]

    def fact(self, step: str, key: str) -> Any:
        """A value of a step's summary, of this shard's task or of its only one."""
        made = self.run.task(step, self.shard) or self.run.task(step, "")
        return made.summary.get(key) if made else None


def _left(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    """Filters that take parts out (filters/edit_filter.py)."""
    if (table := shard.table(f"{shard.filter}.score")) is None:
        return
    untouched = column(table, "taken") == 0
    for name, least in (("characters", 1), ("words", settings["words_min"])):
        found = limit(table, name, f"{name}_min", least, True)
        yield Limit(found.rule, np.where(untouched, np.nan, found.value), found.threshold, True)
    if settings["removed_max"] is not None:
        yield limit(table, "removed", "removed_max", settings["removed_max"], False)


def _url(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    table = shard.table("url.score", ["words"])
    if table is not None and settings["words_max"] is not None:
        yield limit(table, "words", "words", settings["words_max"], False)


def _language(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("language.score", ["language", "score"])) is None:
        return
    own, threshold = own_thresholds(settings), settings["threshold"]
    of = {name: language_codes.find(own, name) for name in pc.unique(table["language"]).to_pylist()}
    least = np.array([threshold if of[name] is None else of[name] for name in table["language"].to_pylist()], float)
    yield limit(table, "score", "score", least, True)
    compared = shard.table("language.compare", list(COMPARED))
    for measure, rule in COMPARED.items() if compared is not None else ():
        if settings.get(rule) is not None:
            yield limit(compared, measure, rule, settings[rule], True)


def _multilingual(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("multilingual.score")) is None:
        return
    yield limit(table, "characters", "characters_min", settings["characters_min"], True)
    if settings["foreign_max"] is not None:
        yield limit(table, "foreign", "foreign_max", settings["foreign_max"], False)


def _heuristics(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("heuristics.score")) is None:
        return
    given = [made.path for made in shard.run.of("heuristics.calibrate") if made.path]
    chosen = ByLanguage(settings, calibrated.read(given))
    languages, places = np.unique(np.array(shard.languages(), dtype=str), return_inverse=True)
    active = [{rule.name: rule for rule in chosen.of(str(language))} for language in languages]
    for name in chosen.names():
        known = [of.get(name) for of in active]
        if one := next(filter(None, known), None):
            # What no rule of the document's language compares is NaN.
            threshold = np.array([np.nan if rule is None else rule.threshold for rule in known], float)[places]
            value = np.where(np.isnan(threshold), np.nan, column(table, one.measure))
            yield Limit(name, value, threshold, one.low)


def _lines(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("lines.score")) is None:
        return
    yield limit(table, "characters", "characters_min", 1, True)
    yield limit(table, "sentences", "sentences_min", settings["sentences_min"], True)
    if settings["flagged_max"] is not None:
        yield limit(table, "flagged", "flagged_max", settings["flagged_max"], False)


def _licence(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    table = shard.table("licence.score", ["beside"])
    if table is not None and settings["beside_max"] is not None:
        yield limit(table, "beside", "beside", settings["beside_max"], False)


def _sourcecode(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("sourcecode.score")) is None:
        return
    is_code, is_data = pc.is_valid(table["extension"]).to_numpy(), column(table, "data") == 1
    for name in MEASURED:
        low = name.startswith("alpha")
        rule = f"{name}_{'min' if low else 'max'}"
        usual = np.nan if settings[rule] is None else settings[rule]
        of_data = {"longest_line": settings["data_longest_line_max"], "mean_line": np.nan}.get(name, usual)
        threshold = np.where(is_data, np.nan if of_data is None else of_data, usual)
        value = np.where(is_code & ~np.isnan(threshold), column(table, name), np.nan)
        yield Limit(rule, value, threshold, low)


def _toxicity(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("toxicity.score")) is None:
        return
    terms, words = column(table, "terms"), column(table, "words")
    if settings["terms_max"] is not None:
        yield limit(table, "terms", "terms", settings["terms_max"], False)
    if settings["share_max"] is not None:
        share = np.where(words > 0, column(table, "hits") / np.maximum(words, 1), 0.0)
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


def _pii(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    if (table := shard.table("pii.score")) is None:
        return
    for kind in KINDS:
        if settings["actions"].get(kind) == "drop":
            yield limit(table, kind, kind, settings["drop_from"], False, equal=True)
    if settings["total_max"] is not None:
        counted = [column(table, kind) for kind in KINDS if settings["actions"].get(kind) != "keep"]
        total = np.sum(counted, axis=0) if counted else np.zeros(len(table))
        yield Limit("total_max", total, np.full(len(total), float(settings["total_max"])), False)


def _quality(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    signals = "quality.combine" if shard.run.of("quality.combine") else "quality.score"
    if (table := shard.table(signals, ["score", "curated"])) is None:
        return
    method, by_language = settings["method"], shard.fact("quality.select", "by_language")
    if method == "pareto":
        threshold = 1.0 - np.array(
            [pareto(settings["seed"], name, settings["alpha"]) for name in table["id"].to_pylist()]
        )
    elif by_language:
        # A language with few documents is in a group with others, which the summary lists.
        group = {member: name for name, of in by_language.items() for member in of.get("languages", [name])}
        cuts = [by_language.get(group.get(language, ""), {}).get("threshold") for language in shard.languages()]
        threshold = np.array([np.nan if cut is None else cut for cut in cuts], float)
    else:
        found = shard.fact("quality.select", "threshold")
        threshold = np.full(len(table), np.nan if found is None else found)
    # Curated documents are not judged.
    value = np.where((column(table, "curated") == 1) | np.isnan(threshold), np.nan, column(table, "score"))
    yield Limit(method, value, threshold, True, equal=method == "pareto")


def _decontaminate(shard: Shard, settings: dict[str, Any]) -> Iterator[Limit]:
    table, most = shard.table("decontaminate.score", ["overlap"]), shard.fact("decontaminate.select", "overlap_max")
    if table is not None and most is not None:
        yield limit(table, "overlap", "overlap_max", most, False)


OF: dict[str, Callable[[Shard, dict[str, Any]], Iterator[Limit]]] = {
    "url": _url,
    "language": _language,
    "multilingual": _multilingual,
    "heuristics": _heuristics,
    "lines": _lines,
    "boilerplate": _left,
    "licence": _licence,
    "sourcecode": _sourcecode,
    "toxicity": _toxicity,
    "pii": _pii,
    "paragraphs": _left,
    "substrings": _left,
    "quality": _quality,
    "decontaminate": _decontaminate,
}  # dedup compares pairs: stages/report/inspect_sampling.py


def limits(run: Run, filter_: str, shard: str, ids: pa.ChunkedArray, settings: dict[str, Any]) -> Iterator[Limit]:
    """The limits of a filter's rules on a shard's documents, one rule held at a time. ids: of its verdicts; settings: of its select."""
    if filter_ in OF:
        yield from OF[filter_](Shard(run, filter_, shard, ids), completed(f"{filter_}.select", settings))
