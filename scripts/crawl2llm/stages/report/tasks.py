"""The tasks of evaluate.items: a table of what each model reaches beside n-grams, an untrained model and guessing; two lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crawl2llm.chain.model_registry import UNTRAINED
from crawl2llm.formats.run_records import Run, dig, number
from crawl2llm.stages.report.models import title, trained
from crawl2llm.stages.report.page import NOTHING, integer, percent, signed, significant

NAMES = {"word_order": "Word order", "next_word": "Next word", "continuation": "Continuation"}
NGRAMS = ("unigram", "bigram")
COMPRESSORS = ("xz", "zstd")


def found(run: Run, untrained: dict[str, Any] | None) -> dict[str, Any]:
    """What stands beside the models' results: the tasks, what n-grams and compressors reach, and the evaluation of the untrained model."""
    made = {key: run.summary("evaluate.items", key) for key in ("tasks", "heldout_text")}
    return {**made, UNTRAINED: untrained}


def asked(counts: dict[str, Any]) -> dict[str, Any]:
    """What evaluate.items says of each task, in the order of NAMES."""
    known = dict(dig(counts, "beside", "tasks") or {})
    for model in counts.get("models") or []:  # classifications of the held-out pairs
        known = {**(dig(model, "evaluation", "items") or {}), **known}
    return {
        task: known[task] for task in [*(name for name in NAMES if name in known), *sorted(known.keys() - NAMES.keys())]
    }


def columns(counts: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(heading, numbers by task) of the n-grams, the untrained model and each model that was evaluated, from the least to the most."""
    beside = counts.get("beside") or {}
    tasks = asked(counts)
    made = [(name, {task: dig(of, "baselines", name) for task, of in tasks.items()}) for name in NGRAMS if tasks]
    if beside.get(UNTRAINED):
        made.append((UNTRAINED, dig(beside, UNTRAINED, "items") or {}))
    evaluated = [model for model in counts.get("models") or [] if model["evaluation"] and trained(model)]
    return made + [(title(model["name"]), dig(model, "evaluation", "items") or {}) for model in evaluated]


def share(of: Any) -> str:
    """`54.2 % ± 2.7 %`: an accuracy with its standard error over documents."""
    wide = number(dig(of, "stderr"))
    return percent(dig(of, "accuracy")) + (f" ± {percent(wide)}" if wide is not None else "")


def centered(of: Any) -> str:
    """`+0.39`: 0 is guessing, 1 is all right."""
    return signed(dig(of, "centered"), 2)


def second(of: dict[str, Any]) -> str:
    """What stands below an accuracy: the centered score, and macro F1 of a classification."""
    return centered(of) + (f", F1 {of['macro_f1']:.2f}" if "macro_f1" in of else "")


def note(of: dict[str, Any]) -> str:
    """What a task was measured on, and of a classification what the most frequent label alone would reach."""
    most = f"; always the same label: {percent(of['majority'])}" if "majority" in of else ""
    return f"{integer(of['items'])} items of {integer(of['documents'])} documents{most}"


def tables(counts: dict[str, Any]) -> dict[str, Any]:
    """`heads` and `rows` (name, chance, cells of (accuracy, centered score), items), and `bits`: (name, bits per byte) of the same text."""
    across = [(name, of) for name, of in columns(counts)]
    rows = []
    for task, of in asked(counts).items():
        results = [column.get(task) for _, column in across]
        if any(results):
            rows.append(
                {
                    "name": NAMES.get(task, task),
                    "chance": percent(next((dig(result, "chance") for result in results if result), None)),
                    "cells": [(share(result), second(result)) if result else (NOTHING, "") for result in results],
                    "note": note(of),
                }
            )
    return {"heads": [name for name, _ in across], "rows": rows, "bits": list(bits(counts))}


def bits(counts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """(name, bits per byte of the held-out text) of compressors, n-grams, the untrained model and each model."""
    text = dig(counts, "beside", "heldout_text", "bits_per_byte") or {}
    if not text:
        return
    for name in (*COMPRESSORS, *NGRAMS):
        yield name, significant(text.get(name))
    every = [(UNTRAINED, dig(counts, "beside", UNTRAINED))]
    every += [(title(model["name"]), model["evaluation"]) for model in counts["models"] if trained(model)]
    for name, evaluation in every:
        if value := number(dig(evaluation, "heldout_text", "bits_per_byte")):
            yield name, significant(value)


def lines(counts: dict[str, Any]) -> list[tuple[str, str]]:
    """What `make demo` prints of the tasks: the models, and below them what they stand beside; nothing without tasks."""
    across = [(name, of) for name, of in columns(counts) if of]
    tasks = [task for task in asked(counts) if any(of.get(task) for _, of in across)]
    if not tasks:
        return []
    beside = {*NGRAMS, UNTRAINED}
    models = [(name.lower(), of) for name, of in across if name not in beside]

    def said(of: dict[str, Any]) -> str:
        return ", ".join(f"{NAMES.get(task, task).lower()} {percent(dig(of, task, 'accuracy'))}" for task in tasks)

    chances = {task: {"accuracy": dig(next(of[task] for _, of in across if of.get(task)), "chance")} for task in tasks}
    other = [(name, of) for name, of in across if name in ("bigram", UNTRAINED)]
    shares = [
        f"{name} {', '.join(percent(dig(of, task, 'accuracy')) for task in tasks)}"
        for name, of in [*other, ("chance", chances)]
    ]
    made = [("tasks", "; ".join(f"{name}: {said(of)}" for name, of in models))] if models else []
    return [*made, ("beside", "; ".join(shares))]
