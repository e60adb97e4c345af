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
from crawl2llm.core.console import quantity
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical, digest
from crawl2llm.formats.run_records import Run
from crawl2llm.stages.report.excerpts import rows_of
from crawl2llm.stages.report.inspect_sampling import DROPPED, EDITED, KEPT, NO_RULE, shards_of, spans_of
from crawl2llm.stages.report.mark_estimate import Estimate, Group, needed, precision, recall
from crawl2llm.stages.report.mark_lines import Mark, Marks

Row = dict[str, Any]
WIDE = 0.1  # half an interval above which a number is called uncertain


def digest_of(run: Run, filter_: str) -> str:
    """What a filter's verdicts are, as 16 hex digits: a digest of its tables' checksums. Marks are made on one such set of verdicts."""
    tables = {
        name: facts["xxh3"]
        for made in run.of(f"{filter_}.select")
        for name, facts in made.files.items()
        if "/" not in name
    }
    return digest(canonical({"filter": filter_, "tables": tables}))[:16]


def now(run: Run, filter_: str, marks: Iterable[Mark]) -> Iterator[Mark]:
    """The marks on documents whose verdict is still the one that was marked."""
    given = list(marks)
    wanted = pa.array(sorted({one.id for one in given}), pa.string())
    step, editing = f"{filter_}.select", FILTERS[filter_].edits if filter_ in FILTERS else ""
    verdicts: dict[str, Row] = {}
    edited: set[tuple[str, str]] = set()
    for shard in shards_of(run, step) if given else ():
        verdicts |= rows_of(run, step, shard, wanted, ["kept", "rule"])
        spans = spans_of(run, f"{filter_}.{editing}", shard) if editing else None
        if spans is not None:
            found = spans.filter(pc.is_in(spans["id"], value_set=wanted))
            edited |= set(zip(found["id"].to_pylist(), found["rule"].to_pylist(), strict=True))
    for one in given:
        verdict = verdicts.get(one.id)
        if verdict is None:
            continue
        if one.verdict == DROPPED:
            same = not verdict["kept"] and verdict["rule"] == one.rule
        else:
            same = verdict["kept"] and (one.verdict == KEPT or (one.id, one.rule) in edited)
        if same:
            yield one


def populations(run: Run, filter_: str) -> dict[tuple[str, str], int]:
    """(verdict, rule) → documents, as report.inspect counted them. Raises InputError where its pages are of other verdicts."""
    found = run.fact("report.inspect", "filters", filter_) or {}
    if found.get("run") != digest_of(run, filter_):
        raise InputError(
            f"report.inspect is of other verdicts of {filter_} than those that are there: run it first (snakemake report_inspect)"
        )
    return {(each["verdict"], each["rule"]): each["documents"] for each in found["groups"]}


def of_filter(filter_: str, sizes: dict[tuple[str, str], int], marks: list[Mark]) -> Row:
    """What the marks say of a filter. sizes: of `populations`; marks: those that count."""
    random = [one for one in marks if one.sample == "random"]
    tally = Counter((one.key[1], one.key[2], one.mark) for one in random)

    def group(verdict: str, rule: str) -> Group:
        right, wrong = (tally[verdict, rule, mark] for mark in ("right", "wrong"))
        number = sizes.get((verdict, rule), 0)
        return Group(max(number, right + wrong), right + wrong, right)

    dropped = {rule: group(DROPPED, rule) for verdict, rule in sorted(sizes) if verdict == DROPPED}
    kept = group(KEPT, NO_RULE)
    marked = [one for one in dropped.values() if one.marked]
    rules = [
        _row(
            DROPPED,
            rule,
            one,
            precision([one]) if one.marked else None,
            recall(marked, kept, [one]) if one.marked else None,
        )
        for rule, one in dropped.items()
    ]
    edited = [
        _row(EDITED, rule, one, precision([one]) if one.marked else None, None)
        for verdict, rule in sorted(sizes)
        if verdict == EDITED
        for one in [group(EDITED, rule)]
    ]
    whole = Group(
        sum(one.documents for one in dropped.values()),
        sum(one.marked for one in dropped.values()),
        sum(one.right for one in dropped.values()),
    )
    return {
        "filter": filter_,
        "marks": len(marks),
        "random": len(random),
        "all": _row(DROPPED, "", whole, precision(marked) if marked else None, recall(marked, kept) if marked else None),
        "kept": _row(KEPT, "", kept, None, None),
        "rules": rules,
        "edited": edited,
        "faults": [
            {"verdict": one.verdict, "rule": one.rule, "id": one.id, "url": one.url, "sample": one.sample}
            for one in sorted(marks, key=lambda each: (each.verdict, each.rule, each.id))
            if one.mark == "wrong"
        ],
        "notes": list(notes(dropped, kept, rules)),
    }  # fmt: skip


def _row(verdict: str, rule: str, group: Group, precise: Estimate | None, found: Estimate | None) -> Row:
    return {
        "verdict": verdict,
        "rule": rule,
        "documents": group.documents,
        "marks": group.marked,
        "wrong": group.marked - group.right,
        "precision": precise and vars(precise),
        "recall": found and vars(found),
    }


def notes(dropped: dict[str, Group], kept: Group, rules: list[Row]) -> Iterator[str]:
    """What cannot be said with so few marks."""
    without = {rule: one for rule, one in dropped.items() if one.documents and not one.marked}
    if without and len(without) < len(dropped):
        number = sum(one.documents for one in without.values())
        yield (
            f"nothing is known of {', '.join(without)}: none of {number:,} dropped documents is marked, and the numbers of the filter "
            "are without them"
        )
    if not any(one.marked for one in dropped.values()) and dropped:
        yield "no dropped document of the random sample is marked: nothing can be said of precision or recall"
    elif kept.documents and not kept.marked:
        yield "no kept document of the random sample is marked: nothing can be said of recall"
    elif kept.marked and kept.marked == kept.right and kept.documents > kept.marked:
        most = 3 / kept.marked  # the rule of three: Hanley and Lippman-Hand 1983, JAMA 249(13)
        yield (
            f"none of {quantity(kept.marked, 'marked kept document', 'marked kept documents')} is wrong: "
            f"still up to about {min(1.0, most):.1%} of {kept.documents:,} may be (95 %), which recall's lower end allows for"
        )
    for one in rules:
        found = one["precision"]
        if found and (found["high"] - found["low"]) / 2 > WIDE:
            wanted = needed(found["value"], one["documents"])
            if wanted > one["marks"]:
                few = quantity(one["marks"], "mark is", "marks are")
                yield f"{one['rule']}: {few} few; about {wanted:,} make its precision certain to ±{WIDE:.0%}"


def told(run: Run, marks: Marks) -> Row:
    """What marks say of a run: `filters`, each of `of_filter`, with `run` and how many marks count; and what was left out."""
    by: dict[str, list[Mark]] = {}
    for one in marks.held.values():
        by.setdefault(one.filter, []).append(one)
    found, left = [], Counter[str]()
    for filter_ in run.filters:
        given = by.pop(filter_, [])
        if not given:
            continue
        same = list(now(run, filter_, given))
        mark = digest_of(run, filter_)
        left["verdict"] += len(given) - len(same)
        of = of_filter(filter_, populations(run, filter_), same)
        of |= {"run": mark, "given": len(given), "other_runs": sum(one.run != mark for one in same)}
        found.append(of)
    return {
        "filters": found,
        "lines": marks.lines,
        "documents": len(marks.held),
        "bad": marks.bad,
        "differing": len(marks.differing),
        "other_verdict": left["verdict"],
        "other_filters": {name: len(given) for name, given in sorted(by.items())},
    }
