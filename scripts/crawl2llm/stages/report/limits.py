"""What the rules of every filter compare, of the documents that they keep too: rule, measure, threshold.

A verdict names the value and the threshold of what was dropped alone. Of a kept document the value is in the filter's signals and the
threshold in its settings, or in a manifest where it was found from the data. A rule that compares no number has no limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.core.settings import Settings
from crawl2llm.filters.framework.columns import Columns, Numbers, encode_labels
from crawl2llm.filters.framework.rules import Limit, Rule
from crawl2llm.filters.quality.select import pareto_draw
from crawl2llm.filters.quality.settings import SelectSettings
from crawl2llm.formats.documents import open_parquet
from crawl2llm.formats.run_records import Run, table_of
from crawl2llm.stages.report import declared_rules


def number_column(table: pa.Table, name: str) -> Numbers:
    """A column of numbers as float64, null as NaN."""
    numbers = table[name].combine_chunks().cast(pa.float64())
    return np.asarray(pc.fill_null(numbers, np.nan).to_numpy(zero_copy_only=False), np.float64)


class Shard:
    """The signals of one shard of a filter, in the order of its verdicts.

    ids: of the verdicts. A table that does not have the same documents in the same order is brought into it.
    """

    def __init__(self, run: Run, filter_: str, shard: str, ids: pa.ChunkedArray) -> None:
        self.run, self.filter, self.shard, self.ids = run, filter_, shard, ids

    def table(self, step: str, columns: list[str] | None = None) -> pa.Table | None:
        """The rows of a step's table of this shard, one for each verdict (null if it has none); None without such a table.

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


def _declared_limits(shard: Shard, settings: Settings) -> Iterator[Limit]:
    """Of a filter that declares its rules."""
    calibrations = [manifest.path for manifest in shard.run.manifests_of(declared_rules.CALIBRATE) if manifest.path]
    rules = declared_rules.rules_of(shard.filter, settings, calibrations)
    tables = {name: shard.table(f"{shard.filter}.{name}") for name in declared_rules.measuring_steps(rules)}
    signals = [table for table in tables.values() if table is not None]
    if tables.get("score") is None:
        return
    columns = Columns(signals, *encode_labels(pa.array(shard.languages(), pa.string())))
    compared = (rule for rule in rules if isinstance(rule, Rule) and tables[rule.step] is not None)
    for _, same_name in groupby(compared, lambda rule: rule.name):
        limit, *others = (rule.limit(columns, settings) for rule in same_name)
        for other in others:
            here = np.isnan(limit.value)
            value, threshold = (
                np.where(here, *pair) for pair in ((other.value, limit.value), (other.threshold, limit.threshold))
            )
            limit = Limit(limit.rule, value, threshold, limit.drops)
        if not np.isnan(limit.threshold).all():
            yield limit


def _quality_limits(shard: Shard, settings: SelectSettings) -> Iterator[Limit]:
    signals = "quality.combine" if shard.run.manifests_of("quality.combine") else "quality.score"
    if (table := shard.table(signals, ["score", "curated"])) is None:
        return
    method, by_language = settings.method, shard.fact("quality.select", "by_language")
    if method == "pareto":
        threshold = 1.0 - np.array(
            [pareto_draw(settings.seed, name, settings.alpha) for name in table["id"].to_pylist()]
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
    yield Limit(method, value, threshold, "<=" if method == "pareto" else "<")


def _decontaminate_limits(shard: Shard, settings: Settings) -> Iterator[Limit]:
    table, most = shard.table("decontaminate.score", ["overlap"]), shard.fact("decontaminate.select", "overlap_max")
    if table is not None and most is not None:
        value = number_column(table, "overlap")
        yield Limit("overlap_max", value, np.full(len(value), float(most)), ">")


# dedup is not among them, since it compares pairs: stages/report/inspect_sampling.py.
OTHER_LIMITS: dict[str, Callable[[Shard, Any], Iterator[Limit]]] = {
    "quality": _quality_limits,
    "decontaminate": _decontaminate_limits,
}


def filter_limits(run: Run, filter_: str, shard: str, ids: pa.ChunkedArray, settings: Settings) -> Iterator[Limit]:
    """The limits of a filter's rules on a shard's documents, one rule held at a time. ids: of its verdicts; settings: of its select."""
    limits_of = OTHER_LIMITS.get(filter_, _declared_limits)
    yield from limits_of(Shard(run, filter_, shard, ids), settings)
