"""What marks say, in words: for the terminal, the index of the pages and the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crawl2llm.core.console import quantity
from crawl2llm.stages.report.excerpts import clean
from crawl2llm.stages.report.page import NOTHING

Row = dict[str, Any]
FAULTS = 20  # that are listed; --json has all


def share(found: dict[str, float] | None) -> str:
    """`92 % (85–97)`; `92 % (of all)` where every document is marked; `–` where it is not known."""
    if found is None:
        return NOTHING
    if found["low"] == found["high"]:
        return f"{found['value']:.0%} (of all)".replace("%", " %")
    return f"{found['value']:.0%} ({found['low'] * 100:.0f}–{found['high'] * 100:.0f})".replace("%", " %")


def about(told: Row) -> str:
    """One sentence on which marks these are."""
    used = sum(of["marks"] for of in told["filters"])
    said = [quantity(used, "mark on a document counts", "marks on documents count")]
    if others := sum(of["other_runs"] for of in told["filters"]):
        said.append(
            f"{quantity(others, 'of them was', 'of them were')} made on other verdicts of their filter, and the document's is the same"
        )
    if told["other_verdict"]:
        said.append(
            f"{quantity(told['other_verdict'], 'is', 'are')} left out, since the document's verdict is another now, or it does "
            "not get there"
        )
    for name, number in told["other_filters"].items():
        said.append(f"{quantity(number, 'is', 'are')} of {name}, which this run does not use")
    if told["differing"]:
        said.append(
            f"{quantity(told['differing'], 'document is', 'documents are')} marked both ways, and the newest mark counts"
        )
    if told["bad"]:
        said.append(quantity(len(told["bad"]), "line is no mark", "lines are no marks"))
    return "; ".join(said) + ". In brackets: 95 % intervals."


def rows(told: Row) -> Iterator[Row]:
    """The table: a row for each filter, and each of its rules with documents; precision and recall as text."""
    for of in told["filters"]:
        for one in (of["all"], *of["rules"], *of["edited"], of["kept"]):
            rule = one["rule"] or ("kept" if one["verdict"] == "kept" else "")
            yield {
                "filter": of["filter"],
                "rule": f"edits: {rule}" if one["verdict"] == "edited" else rule,
                "documents": one["documents"],
                "marks": one["marks"],
                "wrong": one["wrong"],
                "precision": share(one["precision"]),
                "recall": share(one["recall"]),
            }


def shown(told: Row) -> Row:
    """`words`, `rows` and `notes` for a page."""
    return {
        "words": about(told),
        "rows": list(rows(told)),
        "notes": [f"{of['filter']}: {note}" for of in told["filters"] for note in of["notes"]],
    }


def lines(told: Row) -> Iterator[str]:
    """The same as text, with the faults that were found."""
    yield about(told)
    yield from (f"no mark: {line}" for line in told["bad"][:FAULTS])
    if len(told["bad"]) > FAULTS:
        yield f"… {quantity(len(told['bad']) - FAULTS, 'more line that is no mark', 'more lines that are no marks')}"
    if told["filters"]:
        width = max(16, *(len(row["rule"]) + 2 for row in rows(told)))
        yield f"{'':{width}} {'documents':>10} {'marks':>6} {'wrong':>6}  {'precision':18} recall"
    for of in told["filters"]:
        for number, row in enumerate(rows({**told, "filters": [of]})):
            name = of["filter"] if not number else f"  {row['rule']}"
            yield (
                f"{name:{width}} {row['documents']:>10,} {row['marks']:>6,} {row['wrong']:>6,}  {row['precision']:18} {row['recall']}"
            ).rstrip()
        yield from (f"  {note}" for note in of["notes"])
        if of["faults"]:
            yield f"  faults found: {len(of['faults']):,}"
        for fault in of["faults"][:FAULTS]:
            where = f" {fault['rule']}" if fault["rule"] else ""
            # Somebody else's file may hold anything, and a terminal obeys control characters.
            yield clean(f"    wrongly {fault['verdict']}{where}  {fault['id']}  {fault['url'] or 'no address'}")
        if len(of["faults"]) > FAULTS:
            yield f"    … {len(of['faults']) - FAULTS:,} more: --json lists all"
