"""What marks say, in words: for the terminal, the index of the pages and the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crawl2llm.core.console import format_quantity
from crawl2llm.stages.report.excerpts import clean_text
from crawl2llm.stages.report.page import NOTHING

Row = dict[str, Any]
FAULTS = 20  # that are listed; --json has all


def share_text(estimate: dict[str, float] | None) -> str:
    """`92 % (85–97)`; `92 % (of all)` where every document is marked; `–` where it is not known."""
    if estimate is None:
        return NOTHING
    if estimate["low"] == estimate["high"]:
        return f"{estimate['value']:.0%} (of all)".replace("%", " %")
    return f"{estimate['value']:.0%} ({estimate['low'] * 100:.0f}–{estimate['high'] * 100:.0f})".replace("%", " %")


def marks_sentence(summary: Row) -> str:
    """One sentence on which marks these are."""
    counted = sum(filter_row["marks"] for filter_row in summary["filters"])
    parts = [format_quantity(counted, "mark on a document counts", "marks on documents count")]
    if on_other_verdicts := sum(of["other_runs"] for of in summary["filters"]):
        parts.append(
            f"{format_quantity(on_other_verdicts, 'of them was', 'of them were')} made on other verdicts of their filter, and the "
            "document's is the same"
        )
    if summary["other_verdict"]:
        parts.append(
            f"{format_quantity(summary['other_verdict'], 'is', 'are')} left out, since the document's verdict is another now, or it does "
            "not get there"
        )
    for name, number in summary["other_filters"].items():
        parts.append(f"{format_quantity(number, 'is', 'are')} of {name}, which this run does not use")
    if summary["differing"]:
        parts.append(
            f"{format_quantity(summary['differing'], 'document is', 'documents are')} marked both ways, and the newest mark counts"
        )
    if summary["bad"]:
        parts.append(format_quantity(len(summary["bad"]), "line is no mark", "lines are no marks"))
    return "; ".join(parts) + ". In brackets: 95 % intervals."


def table_rows(summary: Row) -> Iterator[Row]:
    """The table: a row for each filter, and each of its rules with documents; precision and recall as text."""
    for filter_row in summary["filters"]:
        for row in (filter_row["all"], *filter_row["rules"], *filter_row["edited"], filter_row["kept"]):
            rule = row["rule"] or ("kept" if row["verdict"] == "kept" else "")
            yield {
                "filter": filter_row["filter"],
                "rule": f"edits: {rule}" if row["verdict"] == "edited" else rule,
                "documents": row["documents"],
                "marks": row["marks"],
                "wrong": row["wrong"],
                "precision": share_text(row["precision"]),
                "recall": share_text(row["recall"]),
            }


def marks_for_page(summary: Row) -> Row:
    """`words`, `rows` and `notes` for a page."""
    return {
        "words": marks_sentence(summary),
        "rows": list(table_rows(summary)),
        "notes": [
            f"{filter_row['filter']}: {note}" for filter_row in summary["filters"] for note in filter_row["notes"]
        ],
    }


def text_lines(summary: Row) -> Iterator[str]:
    """The same as text, with the faults that were found."""
    yield marks_sentence(summary)
    yield from (f"no mark: {line}" for line in summary["bad"][:FAULTS])
    if len(summary["bad"]) > FAULTS:
        yield f"… {format_quantity(len(summary['bad']) - FAULTS, 'more line that is no mark', 'more lines that are no marks')}"
    if summary["filters"]:
        width = max(16, *(len(row["rule"]) + 2 for row in table_rows(summary)))
        yield f"{'':{width}} {'documents':>10} {'marks':>6} {'wrong':>6}  {'precision':18} recall"
    for filter_row in summary["filters"]:
        for number, row in enumerate(table_rows({**summary, "filters": [filter_row]})):
            name = filter_row["filter"] if not number else f"  {row['rule']}"
            yield (
                f"{name:{width}} {row['documents']:>10,} {row['marks']:>6,} {row['wrong']:>6,}  {row['precision']:18} {row['recall']}"
            ).rstrip()
        yield from (f"  {note}" for note in filter_row["notes"])
        if filter_row["faults"]:
            yield f"  faults found: {len(filter_row['faults']):,}"
        for fault in filter_row["faults"][:FAULTS]:
            where = f" {fault['rule']}" if fault["rule"] else ""
            # Somebody else's file may hold anything, and a terminal obeys control characters.
            yield clean_text(f"    wrongly {fault['verdict']}{where}  {fault['id']}  {fault['url'] or 'no address'}")
        if len(filter_row["faults"]) > FAULTS:
            yield f"    … {len(filter_row['faults']) - FAULTS:,} more: --json lists all"
