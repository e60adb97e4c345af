"""Texts that a model wrote for the corpus, as rows of the report: how many, what they cost, why replies were dropped, and their sides."""

from __future__ import annotations

from crawl2llm.chain.steps import SYNTHESIZE
from crawl2llm.formats.run_records import Run, finite_number, nested_value
from crawl2llm.stages.report.page import format_integer, format_significant

Fact = tuple[str, str, str]


def synthesis_facts(run: Run) -> list[Fact]:
    """A row for each step of synthesize that ran, and one for where its texts are; none without such steps."""
    rows: list[Fact] = []
    for step in SYNTHESIZE:
        counts, summary = run.counts(step), run.summary(step)
        if not counts:
            continue
        dropped = ", ".join(f"{why} {format_integer(count)}" for why, count in sorted(counts["dropped"].items()))
        tokens = sum(finite_number(nested_value(summary, "tokens", kind)) or 0 for kind in ("prompt", "completion"))
        money = finite_number(nested_value(summary, "money"))
        note = [
            f"by {nested_value(summary, 'model')} from {format_integer(nested_value(summary, 'seeds', 'chosen'))} documents",
            f"{format_integer(tokens)} tokens of prompts and replies"
            + (f" for {format_significant(money)}" if money else ""),
            *([f"dropped of {format_integer(counts['in'])}: {dropped}"] if dropped else []),
        ]
        rows.append((f"Texts of {step}", format_integer(counts["kept"]), "; ".join(note)))
    if split := run.summary("corpus.split", "synthesized"):
        heldout = f"{format_integer(split['heldout'])} of them for validation, as what they are made from"
        rows.append(("Synthesized documents in the corpus", format_integer(split["documents"]), heldout))
    return rows
