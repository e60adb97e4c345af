"""Thresholds on single scorers, joined by AND and OR: what a document fails, and the verdict on it.

`require` is a list of alternatives, each a list of conditions. A document stays where all conditions of one alternative hold. A condition
on a score that is not there (a language without a model, say) holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.filters.quality.settings import CombineRequire
from crawl2llm.formats.documents import verdict_table

COLUMNS = {"failed": pa.list_(pa.string()), "value": pa.float64(), "threshold": pa.float64(), "detail": pa.string()}


def rule_name(condition: CombineRequire) -> str:
    """The name of the rule of a condition: `edu_min`, `ppl_max`, `edu_quantile_min`, `kenlm_bucket`."""
    (kind,) = (key for key in ("min", "max", "quantile_min", "buckets") if getattr(condition, key) is not None)
    return f"{condition.scorer}_{'bucket' if kind == 'buckets' else kind}"


def _failing_documents(
    condition: CombineRequire,
    scores: dict[str, np.ndarray],
    quantiles: dict[str, np.ndarray],
    buckets: list[str | None],
) -> tuple[np.ndarray, np.ndarray, float]:
    """(which documents fail, what was measured, threshold); NaN of a rule that compares no number."""
    name = condition.scorer
    if condition.buckets is not None:
        out = np.array([bucket is not None and bucket not in condition.buckets for bucket in buckets], dtype=bool)
        return out, np.full(len(buckets), np.nan), float("nan")
    # Comparisons with NaN are false.
    if condition.max is not None:
        return scores[name] > condition.max, scores[name], condition.max
    if condition.min is not None:
        return scores[name] < condition.min, scores[name], condition.min
    assert condition.quantile_min is not None  # filters/quality/scorers.py refuses a condition without a measure
    return quantiles[name] < condition.quantile_min, quantiles[name], condition.quantile_min


def failure_columns(
    scores: dict[str, np.ndarray],
    quantiles: dict[str, np.ndarray],
    buckets: list[str | None],
    require: list[list[CombineRequire]],
) -> dict[str, list[Any]]:
    """The columns COLUMNS: of a document that no alternative keeps, the rules that it fails, and number and threshold of the first.

    scores, quantiles: (documents,) by scorer, NaN if there is none.
    """
    number = len(buckets)
    columns: dict[str, list[Any]] = {name: [None] * number for name in COLUMNS}
    columns["failed"] = [[] for _ in range(number)]
    outcomes = [
        [(condition, *_failing_documents(condition, scores, quantiles, buckets)) for condition in part]
        for part in require
    ]
    drops = np.ones(number, bool) if outcomes else np.zeros(number, bool)
    for part in outcomes:
        drops &= np.any([out for _, out, _, _ in part], axis=0) if part else False
    for row in np.flatnonzero(drops):
        reasons = [
            (rule_name(each), values[row], limit) for part in outcomes for each, out, values, limit in part if out[row]
        ]
        _, value, threshold = reasons[0]
        columns["failed"][row] = list(dict.fromkeys(name for name, _, _ in reasons))
        if np.isnan(threshold):
            columns["detail"][row] = buckets[row]
        else:
            columns["value"][row], columns["threshold"][row] = float(value), float(threshold)
    return columns


def apply_requirements(signals: pa.RecordBatch, verdicts: pa.Table, skipped: np.ndarray) -> pa.Table:
    """Verdicts of quality.select with those of `require`, where the signals are of quality.combine; else as they are.

    skipped: which rows are of sources that skip the filter; they stay, with the rules that they fail.
    """
    if "failed" not in signals.schema.names:
        return verdicts
    failed = signals.column("failed")
    drops = pc.and_(pc.greater(pc.list_value_length(failed), 0), pc.invert(signals.column("curated")))
    if not pc.any(drops).as_py():
        return verdicts
    out = pc.and_(drops, pa.array(~skipped))
    first = pc.if_else(drops, pc.list_element(_pad_lists(failed), 0), None)
    columns = {name: verdicts[name].combine_chunks() for name in verdicts.column_names}
    columns["kept"] = pc.and_(columns["kept"], pc.invert(out))
    columns["rule"] = pc.if_else(out, first, columns["rule"])
    for name in ("value", "threshold", "detail"):
        columns[name] = pc.if_else(out, signals.column(name), columns[name])
    columns["rules"] = pc.if_else(drops, failed, columns["rules"])
    return verdict_table(columns)


def _pad_lists(lists: pa.ListArray) -> pa.ListArray:
    """Lists with a null in place of none, so that each has a first element."""
    return pa.array([rules or [None] for rules in lists.to_pylist()], pa.list_(pa.string()))
