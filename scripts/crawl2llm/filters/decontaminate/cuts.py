"""What becomes of a document with items of evaluation sets in it: dropped, or the items cut out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from crawl2llm.formats.verdicts import FailedRule, verdict_row

DROP, CUT = "drop", "cut"
# Of the overlap, where overlap_max is null; decon's contamination_score_threshold is 0.8.
DEFAULT_LIMITS = {"ngram": 0.5, "idf": 0.8}
OVERLAP_RULE, CUT_RULE = "overlap_max", "cut_max"


def overlap_limit(overlap_max: float | None, method: str) -> float:
    """The overlap above which an item counts as found. overlap_max: of `decontaminate.select`."""
    return DEFAULT_LIMITS[method] if overlap_max is None else float(overlap_max)


def merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places (start, end) in order, those that touch as one."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def covered_share(spans: Iterable[tuple[int, int]], characters: int) -> float:
    """The share of a text's characters in places."""
    return min(1.0, sum(end - start for start, end in merge_spans(spans)) / max(1, characters))


def judge_document(row: Mapping[str, Any], overlap_max: float, action: str, cut_max: float) -> dict[str, Any]:
    """The verdict on a document. row: `id, overlap, set, item` and `cut`, the share of its characters that would be cut."""
    if row["overlap"] <= overlap_max:
        return verdict_row(row["id"], [])
    detail = f"{row['set']} {row['item']}"
    failed = [FailedRule(OVERLAP_RULE, row["overlap"], overlap_max, detail)]
    if action == CUT and row["cut"] > cut_max:
        failed.insert(0, FailedRule(CUT_RULE, row["cut"], cut_max, detail))
    return verdict_row(row["id"], failed, stays=action == CUT and row["cut"] <= cut_max)
