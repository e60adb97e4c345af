"""Texts that a model wrote for the corpus, as rows of the report: how many, what they cost, why replies were dropped, and their sides."""

from __future__ import annotations

from crawl2llm.chain.steps import SYNTHESIZE
from crawl2llm.formats.run_records import Run, dig, number
from crawl2llm.stages.report.page import integer, significant

Fact = tuple[str, str, str]


def facts(run: Run) -> list[Fact]:
    """A row for each step of synthesize that ran, and one for where its texts are; none without such steps."""
    rows: list[Fact] = []
    for step in SYNTHESIZE:
        counts, summary = run.counts(step), run.summary(step)
        if not counts:
            continue
        dropped = ", ".join(f"{why} {integer(count)}" for why, count in sorted(counts["dropped"].items()))
        tokens = sum(number(dig(summary, "tokens", kind)) or 0 for kind in ("prompt", "completion"))
        money = number(dig(summary, "money"))
        note = [
            f"by {dig(summary, 'model')} from {integer(dig(summary, 'seeds', 'chosen'))} documents",
            f"{integer(tokens)} tokens of prompts and replies" + (f" for {significant(money)}" if money else ""),
            *([f"dropped of {integer(counts['in'])}: {dropped}"] if dropped else []),
        ]
        rows.append((f"Texts of {step}", integer(counts["kept"]), "; ".join(note)))
    if split := run.summary("corpus.split", "synthesized"):
        heldout = f"{integer(split['heldout'])} of them for validation, as what they are made from"
        rows.append(("Synthesized documents in the corpus", integer(split["documents"]), heldout))
    return rows
