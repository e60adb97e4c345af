"""What models wrote, measured, as the report's table: answers beside their references, and texts that were sampled freely."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from crawl2llm.formats.run_records import Run, dig, number
from crawl2llm.stages.report.models import title
from crawl2llm.stages.report.page import NOTHING, integer, percent, significant

STEP, JUDGE = "evaluate.generate", "evaluate.judge"
NAMES = {"answers.rougeL": "Answers: ROUGE-L", "answers.chrf": "Answers: chrF", "judge": "Judge's score"}


def scored(of: Any, key: str, write: Callable[[Any], str] = significant) -> str:
    """`0.139 ± 0.024`: a measure with its standard error over documents."""
    value, wide = number(dig(of, key)), number(dig(of, f"{key}_stderr"))
    return write(value) + (f" ± {write(wide)}" if value is not None and wide is not None else "")


def tenth(value: Any) -> str:
    """`14.8`: of scores from 0 to 100."""
    return NOTHING if number(value) is None else f"{value:.1f}"


# (heading, key, how it is written, key of the references' own value)
ANSWERS = (
    ("ROUGE-1", "rouge1", percent, ""), ("ROUGE-2", "rouge2", percent, ""), ("ROUGE-L", "rougeL", percent, ""),
    ("BLEU", "bleu", tenth, ""), ("chrF", "chrf", tenth, ""),
)  # fmt: skip
OWN = (
    ("Words", "words", significant, "reference_words"),
    ("Distinct words", "distinct_1", percent, "reference_distinct_1"),
    ("Distinct pairs of words", "distinct_2", percent, "reference_distinct_2"),
    ("Repeated stretches of four words", "repetition", percent, "reference_repetition"),
    ("Ended by itself", "ended", percent, ""),
    ("Perplexity of its own text", "self_perplexity", significant, ""),
)


def rows(
    found: list[Any], kind: str, measures: Iterable[tuple[str, str, Callable[[Any], str], str]]
) -> list[dict[str, Any]]:
    """A row for each measure: `kind`, `name`, `reference`, `cells`."""
    first = next((one for one in found if one), None)
    return [
        {
            "kind": kind,
            "name": name,
            "reference": write(dig(first, beside)) if beside and dig(first, beside) is not None else NOTHING,
            "cells": [scored(one, key, write) for one in found],
        }
        for name, key, write, beside in measures
        if first and any(dig(one, key) is not None for one in found)
    ]


def table(run: Run, models: Iterable[str]) -> dict[str, Any]:
    """`heads` of the models that wrote, `rows` and `about`; no row where none wrote."""
    wrote = [(model, made.summary) for model in models if (made := run.task(STEP, model))]
    answers = [dig(summary, "answers", "all") for _, summary in wrote]
    samples = [dig(summary, "samples") for _, summary in wrote]
    found = rows(answers, "answers", (*ANSWERS, *OWN))
    for part in dict.fromkeys(part for _, summary in wrote for part in dig(summary, "answers") or {} if part != "all"):
        found += rows([dig(summary, "answers", part) for _, summary in wrote], part, ANSWERS)
    judged = [dict(made.summary) if (made := run.task(JUDGE, model)) else None for model, _ in wrote]
    if first := next((one for one in judged if one), None):
        low, high = first["scale"]
        told = [one and {"judge": one["score"], "judge_stderr": one["stderr"]} for one in judged]
        found += rows(told, f"{low:g} to {high:g}, by {first['judge']}", [("Judge's score", "judge", significant, "")])
    found += rows(samples, "samples", [(name, key, write, "") for name, key, write, _ in OWN])
    about = []
    if first := next((one for one in answers if one), None):
        about.append(
            f"Greedy answers to {integer(first['items'])} held-out questions of {integer(first['documents'])} documents."
        )
    if first := next((one for one in samples if one), None):
        about.append(f"{integer(first['items'])} texts sampled without a prompt.")
    return {"heads": [title(model) for model, _ in wrote], "rows": found, "about": " ".join(about)}
