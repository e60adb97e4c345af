"""What models wrote, measured, as the report's table: answers beside their references, and texts that were sampled freely."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from crawl2llm.formats.run_records import Run, finite_number, nested_value
from crawl2llm.stages.report.models import model_title
from crawl2llm.stages.report.page import NOTHING, format_integer, format_percent, format_significant

STEP, JUDGE = "evaluate.generate", "evaluate.judge"
NAMES = {"answers.rougeL": "Answers: ROUGE-L", "answers.chrf": "Answers: chrF", "judge": "Judge's score"}


def measure_text(measures: Any, key: str, write: Callable[[Any], str] = format_significant) -> str:
    """`0.139 ± 0.024`: a measure with its standard error over documents."""
    value, error = finite_number(nested_value(measures, key)), finite_number(nested_value(measures, f"{key}_stderr"))
    return write(value) + (f" ± {write(error)}" if value is not None and error is not None else "")


def one_decimal(value: Any) -> str:
    """`14.8`: of scores from 0 to 100."""
    return NOTHING if finite_number(value) is None else f"{value:.1f}"


# (heading, key, how it is written, key of the references' own value)
ANSWERS = (
    ("ROUGE-1", "rouge1", format_percent, ""), ("ROUGE-2", "rouge2", format_percent, ""), ("ROUGE-L", "rougeL", format_percent, ""),
    ("BLEU", "bleu", one_decimal, ""), ("chrF", "chrf", one_decimal, ""),
)  # fmt: skip
TEXT_MEASURES = (
    ("Words", "words", format_significant, "reference_words"),
    ("Distinct words", "distinct_1", format_percent, "reference_distinct_1"),
    ("Distinct pairs of words", "distinct_2", format_percent, "reference_distinct_2"),
    ("Repeated stretches of four words", "repetition", format_percent, "reference_repetition"),
    ("Ended by itself", "ended", format_percent, ""),
    ("Perplexity of its own text", "self_perplexity", format_significant, ""),
)


def measure_rows(
    results: list[Any], kind: str, measures: Iterable[tuple[str, str, Callable[[Any], str], str]]
) -> list[dict[str, Any]]:
    """A row for each measure: `kind`, `name`, `reference`, `cells`."""
    first = next((result for result in results if result), None)
    return [
        {
            "kind": kind,
            "name": name,
            "reference": write(nested_value(first, reference_key))
            if reference_key and nested_value(first, reference_key) is not None
            else NOTHING,
            "cells": [measure_text(result, key, write) for result in results],
        }
        for name, key, write, reference_key in measures
        if first and any(nested_value(result, key) is not None for result in results)
    ]


def table(run: Run, models: Iterable[str]) -> dict[str, Any]:
    """`heads` of the models that wrote, `rows` and `about`; no row where none wrote."""
    summaries = [(model, manifest.summary) for model in models if (manifest := run.task(STEP, model))]
    answers = [nested_value(summary, "answers", "all") for _, summary in summaries]
    samples = [nested_value(summary, "samples") for _, summary in summaries]
    table_rows = measure_rows(answers, "answers", (*ANSWERS, *TEXT_MEASURES))
    for part in dict.fromkeys(
        part for _, summary in summaries for part in nested_value(summary, "answers") or {} if part != "all"
    ):
        table_rows += measure_rows([nested_value(summary, "answers", part) for _, summary in summaries], part, ANSWERS)
    judged = [dict(manifest.summary) if (manifest := run.task(JUDGE, model)) else None for model, _ in summaries]
    if first := next((result for result in judged if result), None):
        low, high = first["scale"]
        scores = [
            judgement and {"judge": judgement["score"], "judge_stderr": judgement["stderr"]} for judgement in judged
        ]
        table_rows += measure_rows(
            scores, f"{low:g} to {high:g}, by {first['judge']}", [("Judge's score", "judge", format_significant, "")]
        )
    table_rows += measure_rows(samples, "samples", [(name, key, write, "") for name, key, write, _ in TEXT_MEASURES])
    about = []
    if first := next((answer for answer in answers if answer), None):
        about.append(
            f"Greedy answers to {format_integer(first['items'])} held-out questions of {format_integer(first['documents'])} documents."
        )
    if first := next((sample for sample in samples if sample), None):
        about.append(f"{format_integer(first['items'])} texts sampled without a prompt.")
    return {"heads": [model_title(model) for model, _ in summaries], "rows": table_rows, "about": " ".join(about)}
