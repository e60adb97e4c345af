"""The tasks of evaluate.items: a table of what each model reaches beside n-grams, an untrained model and guessing; two lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crawl2llm.chain.model_registry import UNTRAINED
from crawl2llm.formats.run_records import Run, finite_number, nested_value
from crawl2llm.stages.report.models import is_trained, model_title
from crawl2llm.stages.report.page import NOTHING, format_integer, format_percent, format_signed, format_significant

NAMES = {"word_order": "Word order", "next_word": "Next word", "continuation": "Continuation"}
NGRAMS = ("unigram", "bigram")
COMPRESSORS = ("xz", "zstd")


def read_baselines(run: Run, untrained: dict[str, Any] | None) -> dict[str, Any]:
    """What is shown beside the models' results: tasks, n-grams, compressors, and the evaluation of the untrained model."""
    facts = {key: run.summary("evaluate.items", key) for key in ("tasks", "heldout_text")}
    return {**facts, UNTRAINED: untrained}


def task_facts(counts: dict[str, Any]) -> dict[str, Any]:
    """What evaluate.items says of each task, in the order of NAMES."""
    facts = dict(nested_value(counts, "beside", "tasks") or {})
    for model in counts.get("models") or []:  # classifications of the held-out pairs
        facts = {**(nested_value(model, "evaluation", "items") or {}), **facts}
    return {
        task: facts[task] for task in [*(name for name in NAMES if name in facts), *sorted(facts.keys() - NAMES.keys())]
    }


def result_columns(counts: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(heading, numbers by task) of the n-grams, the untrained model and each model that was evaluated, from the least to the most."""
    baselines = counts.get("beside") or {}
    tasks = task_facts(counts)
    results = [
        (name, {task: nested_value(facts, "baselines", name) for task, facts in tasks.items()})
        for name in NGRAMS
        if tasks
    ]
    if baselines.get(UNTRAINED):
        results.append((UNTRAINED, nested_value(baselines, UNTRAINED, "items") or {}))
    evaluated = [model for model in counts.get("models") or [] if model["evaluation"] and is_trained(model)]
    return results + [
        (model_title(model["name"]), nested_value(model, "evaluation", "items") or {}) for model in evaluated
    ]


def accuracy_text(result: Any) -> str:
    """`54.2 % ± 2.7 %`: an accuracy with its standard error over documents."""
    error = finite_number(nested_value(result, "stderr"))
    return format_percent(nested_value(result, "accuracy")) + (
        f" ± {format_percent(error)}" if error is not None else ""
    )


def centered_text(result: Any) -> str:
    """`+0.39`: 0 is guessing, 1 is all right."""
    return format_signed(nested_value(result, "centered"), 2)


def second_line(result: dict[str, Any]) -> str:
    """The text below an accuracy: the centered score, and macro F1 of a classification."""
    return centered_text(result) + (f", F1 {result['macro_f1']:.2f}" if "macro_f1" in result else "")


def task_note(facts: dict[str, Any]) -> str:
    """What a task was measured on, and of a classification what the most frequent label alone would reach."""
    most = f"; always the same label: {format_percent(facts['majority'])}" if "majority" in facts else ""
    return f"{format_integer(facts['items'])} items of {format_integer(facts['documents'])} documents{most}"


def result_tables(counts: dict[str, Any]) -> dict[str, Any]:
    """`heads` and `rows` (name, chance, cells of (accuracy, centered score), items), and `bits`: (name, bits per byte) of the same text."""
    model_columns = [(name, facts) for name, facts in result_columns(counts)]
    rows = []
    for task, of in task_facts(counts).items():
        results = [column.get(task) for _, column in model_columns]
        if any(results):
            rows.append(
                {
                    "name": NAMES.get(task, task),
                    "chance": format_percent(
                        next((nested_value(result, "chance") for result in results if result), None)
                    ),
                    "cells": [
                        (accuracy_text(result), second_line(result)) if result else (NOTHING, "") for result in results
                    ],
                    "note": task_note(of),
                }
            )
    return {"heads": [name for name, _ in model_columns], "rows": rows, "bits": list(bits_rows(counts))}


def bits_rows(counts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """(name, bits per byte of the held-out text) of compressors, n-grams, the untrained model and each model."""
    text = nested_value(counts, "beside", "heldout_text", "bits_per_byte") or {}
    if not text:
        return
    for name in (*COMPRESSORS, *NGRAMS):
        yield name, format_significant(text.get(name))
    evaluations = [(UNTRAINED, nested_value(counts, "beside", UNTRAINED))]
    evaluations += [
        (model_title(model["name"]), model["evaluation"]) for model in counts["models"] if is_trained(model)
    ]
    for name, evaluation in evaluations:
        if value := finite_number(nested_value(evaluation, "heldout_text", "bits_per_byte")):
            yield name, format_significant(value)


def task_lines(counts: dict[str, Any]) -> list[tuple[str, str]]:
    """What `make demo` prints of the tasks: the models, and below them what they stand beside; nothing without tasks."""
    model_columns = [(name, results) for name, results in result_columns(counts) if results]
    tasks = [task for task in task_facts(counts) if any(of.get(task) for _, of in model_columns)]
    if not tasks:
        return []
    baseline_names = {*NGRAMS, UNTRAINED}
    models = [(name.lower(), of) for name, of in model_columns if name not in baseline_names]

    def accuracies_text(results: dict[str, Any]) -> str:
        return ", ".join(
            f"{NAMES.get(task, task).lower()} {format_percent(nested_value(results, task, 'accuracy'))}"
            for task in tasks
        )

    chances = {
        task: {"accuracy": nested_value(next(of[task] for _, of in model_columns if of.get(task)), "chance")}
        for task in tasks
    }
    baselines = [(name, of) for name, of in model_columns if name in ("bigram", UNTRAINED)]
    shares = [
        f"{name} {', '.join(format_percent(nested_value(of, task, 'accuracy')) for task in tasks)}"
        for name, of in [*baselines, ("chance", chances)]
    ]
    rows = [("tasks", "; ".join(f"{name}: {accuracies_text(of)}" for name, of in models))] if models else []
    return [*rows, ("beside", "; ".join(shares))]
