"""What becomes of a document with items of evaluation sets in it: dropped, or the items cut out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from crawl2llm.formats.verdicts import Failed, verdict

DROP, CUT = "drop", "cut"
LIMIT = {
    "ngram": 0.5,
    "idf": 0.8,
}  # of the overlap, where overlap_max is null; decon's contamination_score_threshold is 0.8
RULE, REST = "overlap_max", "cut_max"


def limit(settings: Mapping[str, Any], method: str) -> float:
    """The overlap above which an item counts as found."""
    given = settings["overlap_max"]
    return LIMIT[method] if given is None else float(given)


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places (start, end) in order, those that touch as one."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def share(spans: Iterable[tuple[int, int]], characters: int) -> float:
    """The share of a text's characters in places."""
    return min(1.0, sum(end - start for start, end in joined(spans)) / max(1, characters))


def judge(row: Mapping[str, Any], most: float, action: str, cut_max: float) -> dict[str, Any]:
    """The verdict on a document. row: `id, overlap, set, item` and `cut`, the share of its characters that would be cut."""
    if row["overlap"] <= most:
        return verdict(row["id"], [])
    what = f"{row['set']} {row['item']}"
    failed = [Failed(RULE, row["overlap"], most, what)]
    if action == CUT and row["cut"] > cut_max:
        failed.insert(0, Failed(REST, row["cut"], cut_max, what))
    return verdict(row["id"], failed, stays=action == CUT and row["cut"] <= cut_max)
