"""Marks joined with the verdicts of a run as they are now, and what they say: precision and recall by filter and rule, faults, gaps.

A mark counts where the document's verdict is the one that was marked: dropped by the same rule, kept, or edited by the same rule. Marks
that were made on other verdicts of the filter count too where that holds, and are counted apart: their random samples were drawn from
other documents, so they are as good as the two sets of verdicts are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.core.console import format_quantity
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical_json, digest
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report.excerpts import rows_by_id
from crawl2llm.stages.report.inspect_sampling import DROPPED, EDITED, KEPT, NO_RULE, shards_of, spans_of
from crawl2llm.stages.report.mark_estimate import Estimate, Group, marks_needed, precision, recall
from crawl2llm.stages.report.mark_lines import Mark, Marks

Row = dict[str, Any]
WIDE = 0.1  # half an interval above which a number is called uncertain


def verdict_digest(run: Run, filter_: str) -> str:
    """What a filter's verdicts are, as 16 hex digits: a digest of its tables' checksums. Marks are made on one such set of verdicts."""
    tables = {
        name: facts["xxh3"]
        for manifest in run.manifests_of(f"{filter_}.select")
        for name, facts in manifest.files.items()
        if "/" not in name
    }
    return digest(canonical_json({"filter": filter_, "tables": tables}))[:16]


def current_marks(run: Run, filter_: str, marks: Iterable[Mark]) -> Iterator[Mark]:
    """The marks on documents whose verdict is still the one that was marked."""
    mark_list = list(marks)
    wanted_ids = pa.array(sorted({mark.id for mark in mark_list}), pa.string())
    step, editing = f"{filter_}.select", FILTERS[filter_].edits if filter_ in FILTERS else ""
    verdicts: dict[str, Row] = {}
    edited: set[tuple[str, str]] = set()
    for shard in shards_of(run, step) if mark_list else ():
        verdicts |= rows_by_id(run, step, shard, wanted_ids, ["kept", "rule"])
        spans = spans_of(run, f"{filter_}.{editing}", shard) if editing else None
        if spans is not None:
            wanted_spans = spans.filter(pc.is_in(spans["id"], value_set=wanted_ids))
            edited |= set(zip(wanted_spans["id"].to_pylist(), wanted_spans["rule"].to_pylist(), strict=True))
    for mark in mark_list:
        verdict = verdicts.get(mark.id)
        if verdict is None:
            continue
        if mark.verdict == DROPPED:
            is_current = not verdict["kept"] and verdict["rule"] == mark.rule
        else:
            is_current = verdict["kept"] and (mark.verdict == KEPT or (mark.id, mark.rule) in edited)
        if is_current:
            yield mark


def group_sizes(run: Run, filter_: str) -> dict[tuple[str, str], int]:
    """(verdict, rule) → documents, as report.inspect counted them. Raises InputError if its pages are of other verdicts."""
    inspected = run.fact("report.inspect", "filters", filter_) or {}
    if inspected.get("run") != verdict_digest(run, filter_):
        raise InputError(
            f"report.inspect is of other verdicts of {filter_} than those that are there: run it first (snakemake report_inspect)"
        )
    return {(group["verdict"], group["rule"]): group["documents"] for group in inspected["groups"]}


def filter_row(filter_: str, sizes: dict[tuple[str, str], int], marks: list[Mark]) -> Row:
    """What the marks say of a filter. sizes: of `group_sizes`; marks: those that count."""
    random = [item for item in marks if item.sample == "random"]
    tally = Counter((mark.key[1], mark.key[2], mark.mark) for mark in random)

    def sampled_group(verdict: str, rule: str) -> Group:
        right, wrong = (tally[verdict, rule, mark] for mark in ("right", "wrong"))
        number = sizes.get((verdict, rule), 0)
        return Group(max(number, right + wrong), right + wrong, right)

    dropped = {rule: sampled_group(DROPPED, rule) for verdict, rule in sorted(sizes) if verdict == DROPPED}
    kept = sampled_group(KEPT, NO_RULE)
    marked = [group for group in dropped.values() if group.marked]
    rules = [
        _estimate_row(
            DROPPED,
            rule,
            group,
            precision([group]) if group.marked else None,
            recall(marked, kept, [group]) if group.marked else None,
        )
        for rule, group in dropped.items()
    ]
    edited = [
        _estimate_row(EDITED, rule, group, precision([group]) if group.marked else None, None)
        for verdict, rule in sorted(sizes)
        if verdict == EDITED
        for group in [sampled_group(EDITED, rule)]
    ]
    all_dropped = Group(
        sum(group.documents for group in dropped.values()),
        sum(group.marked for group in dropped.values()),
        sum(group.right for group in dropped.values()),
    )
    return {
        "filter": filter_,
        "marks": len(marks),
        "random": len(random),
        "all": _estimate_row(DROPPED, "", all_dropped, precision(marked) if marked else None, recall(marked, kept) if marked else None),
        "kept": _estimate_row(KEPT, "", kept, None, None),
        "rules": rules,
        "edited": edited,
        "faults": [
            {"verdict": mark.verdict, "rule": mark.rule, "id": mark.id, "url": mark.url, "sample": mark.sample}
            for mark in sorted(marks, key=lambda fault: (fault.verdict, fault.rule, fault.id))
            if mark.mark == "wrong"
        ],
        "notes": list(uncertainty_notes(dropped, kept, rules)),
    }  # fmt: skip


def _estimate_row(
    verdict: str, rule: str, group: Group, precision_estimate: Estimate | None, recall_estimate: Estimate | None
) -> Row:
    return {
        "verdict": verdict,
        "rule": rule,
        "documents": group.documents,
        "marks": group.marked,
        "wrong": group.marked - group.right,
        "precision": precision_estimate and vars(precision_estimate),
        "recall": recall_estimate and vars(recall_estimate),
    }


def uncertainty_notes(dropped: dict[str, Group], kept: Group, rules: list[Row]) -> Iterator[str]:
    """What cannot be said with so few marks."""
    without = {rule: item for rule, item in dropped.items() if item.documents and not item.marked}
    if without and len(without) < len(dropped):
        number = sum(row.documents for row in without.values())
        yield (
            f"nothing is known of {', '.join(without)}: none of {number:,} dropped documents is marked, and the numbers of the filter "
            "are without them"
        )
    if not any(row.marked for row in dropped.values()) and dropped:
        yield "no dropped document of the random sample is marked: precision and recall cannot be estimated"
    elif kept.documents and not kept.marked:
        yield "no kept document of the random sample is marked: recall cannot be estimated"
    elif kept.marked and kept.marked == kept.right and kept.documents > kept.marked:
        most = 3 / kept.marked  # the rule of three: Hanley and Lippman-Hand 1983, JAMA 249(13)
        yield (
            f"none of {format_quantity(kept.marked, 'marked kept document', 'marked kept documents')} is wrong: "
            f"still up to about {min(1.0, most):.1%} of {kept.documents:,} may be (95 %), which recall's lower end allows for"
        )
    for row in rules:
        estimate = row["precision"]
        if estimate and (estimate["high"] - estimate["low"]) / 2 > WIDE:
            marks_wanted = marks_needed(estimate["value"], row["documents"])
            if marks_wanted > row["marks"]:
                few = format_quantity(row["marks"], "mark is", "marks are")
                yield f"{row['rule']}: {few} few; about {marks_wanted:,} make its precision certain to ±{WIDE:.0%}"


def marks_summary(run: Run, marks: Marks) -> Row:
    """What marks say of a run: `filters`, each of `filter_row`, with `run` and how many marks count; and what was left out."""
    marks_by_filter: dict[str, list[Mark]] = {}
    for each_mark in marks.by_key.values():
        marks_by_filter.setdefault(each_mark.filter, []).append(each_mark)
    filter_rows, left_out = [], Counter[str]()
    for filter_ in run.filters:
        filter_marks = marks_by_filter.pop(filter_, [])
        if not filter_marks:
            continue
        current = list(current_marks(run, filter_, filter_marks))
        mark = verdict_digest(run, filter_)
        left_out["verdict"] += len(filter_marks) - len(current)
        row = filter_row(filter_, group_sizes(run, filter_), current)
        row |= {
            "run": mark,
            "given": len(filter_marks),
            "other_runs": sum(current_mark.run != mark for current_mark in current),
        }
        filter_rows.append(row)
    return {
        "filters": filter_rows,
        "lines": marks.lines,
        "documents": len(marks.by_key),
        "bad": marks.bad,
        "differing": len(marks.differing),
        "other_verdict": left_out["verdict"],
        "other_filters": {name: len(filter_marks) for name, filter_marks in sorted(marks_by_filter.items())},
    }
