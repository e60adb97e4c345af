"""What evaluate.model found, as the report's table of models, and what they generated side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from crawl2llm.core.console import singular_or_plural
from crawl2llm.formats.run_records import Run, finite_number, nested_value, read_json_lines
from crawl2llm.stages.report.models import is_trained, model_title
from crawl2llm.stages.report.page import (
    NOTHING,
    format_bytes,
    format_integer,
    format_percent,
    format_signed,
    format_significant,
)
from crawl2llm.stages.report.samples import UNSHOWABLE

PROMPTS = 3  # that a run's last lines show


def accuracy_text(questions: Any, key: str = "acc") -> str:
    """`41.3 % ± 1.6 %`: accuracy and its standard error, over documents where it is known, else that of lm-evaluation-harness."""
    over = {"acc": finite_number(nested_value(questions, "stderr"))}.get(key)
    value = finite_number(nested_value(questions, key))
    error = finite_number(nested_value(questions, f"{key}_stderr")) if over is None else over
    if value is None:
        return NOTHING
    return format_percent(value) + (f" ± {format_percent(error)}" if error is not None else "")


def heldout_size_text(text: Any) -> str:
    """What a held-out loss was measured on."""
    if not finite_number(nested_value(text, "documents")):
        return "no validation documents"
    count = nested_value(text, "documents")
    return f"{format_integer(count)} validation {singular_or_plural(count, 'document')}, {format_bytes(nested_value(text, 'bytes'))}"


def evaluation_table(run: Run, models: list[dict[str, Any]]) -> dict[str, Any]:
    """The evaluation table (models as columns) and the generated samples side by side. models: `models` of counts.json.

    A model that was not trained has no column: it is the one that it is made from.
    """
    shown_models = [model for model in models if model["evaluation"] and is_trained(model)]
    results = [model["evaluation"] for model in shown_models]
    text, questions, tasks = (
        next((nested_value(result, part) for result in results if nested_value(result, part)), None)
        for part in ("heldout_text", "questions", "tasks")
    )
    held_out_words = heldout_size_text(text)
    question_words = f"{format_integer(nested_value(questions, 'items'))} held-out questions"
    plan: list[tuple[str, str, Callable[[Any], str], tuple[str, ...]]] = [
        ("Loss", f"nats per token; {held_out_words}", format_significant, ("heldout_text", "loss")),
        ("Perplexity", f"per token; {held_out_words}", format_significant, ("heldout_text", "perplexity")),
        ("Bits per byte", held_out_words, format_significant, ("heldout_text", "bits_per_byte")),
        *(
            (f"Bits per byte: {name}", heldout_size_text(part), format_significant, ("heldout_text", "by_source", name, "bits_per_byte"))
            for name, part in (nested_value(text, "by_source") or {}).items()
        ),
        ("Accuracy ± standard error", question_words, accuracy_text, ("questions",)),
        ("Accuracy by likelihood per character", question_words, format_percent, ("questions", "acc_norm")),
        ("Chance", "accuracy of a guess", format_percent, ("questions", "chance")),
        ("Distance from chance", "standard errors", distance_from_chance, ("questions",)),
    ]  # fmt: skip
    for task in sorted({name for result in results for name in nested_value(result, "tasks", "results") or {}}):
        item_words = f"{format_integer(nested_value(tasks, 'results', task, 'items'))} items"
        plan.append((f"{task}: accuracy", item_words, accuracy_text, ("tasks", "results", task)))
    rows = [
        {"name": name, "cells": [write(nested_value(result, *keys)) for result in results], "note": note}
        for name, note, write, keys in plan
    ]
    about = ["The same held-out data for all models."] if len(shown_models) > 1 else []
    if untrained := [model["name"] for model in models if not is_trained(model)]:
        about.append(f"Without a column, for nothing was trained: {', '.join(untrained)}.")
    return {
        "about": " ".join(about),
        "models": [{"title": model_title(model["name"]), "from": model["from"]} for model in shown_models],
        "rows": [row for row in rows if any(cell != NOTHING for cell in row["cells"])],
        "samples": generated_samples(run, [model["name"] for model in shown_models]),
    }


def distance_from_chance(questions: Any) -> str:
    """`+1.2`: the standard errors, as `accuracy_text` shows them, between an accuracy and that of a guess."""
    value, chance, error = (finite_number(nested_value(questions, key)) for key in ("acc", "chance", "stderr"))
    if value is None or chance is None or not error:
        return format_signed(nested_value(questions, "acc_z"), 1)
    return format_signed((value - chance) / error, 1)


def visible_text(text: str) -> str:
    """A generated text, or words in brackets for one that a reader would not see."""
    if not text.strip():
        return f"[{format_integer(len(text))} characters of white space]" if text else "[nothing]"
    return UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def generated_samples(run: Run, models: Iterable[str]) -> list[dict[str, Any]]:
    """Samples by what was asked: `prompt`, `about`, `reference` and `outputs`, (model, text) for every model."""
    samples: dict[tuple[str, ...], dict[str, Any]] = {}
    for model in models:
        manifest = run.task("evaluate.model", model)
        for name in manifest.files if manifest else ():
            if not (manifest and name.endswith("samples.jsonl")):
                continue
            with run.guard_reading(manifest.file(name)):
                for row in read_json_lines(manifest.file(name)):
                    prompt = str(row.get("question") or row.get("prompt") or "")
                    kind, decoding = str(row.get("kind", "prompt")), str(row.get("decoding", ""))
                    about, reference = f"{kind}, {decoding} decoding", row.get("reference")
                    new_sample: dict[str, Any] = {
                        "prompt": prompt,
                        "about": about,
                        "outputs": [],
                        "reference": reference,
                    }
                    sample = samples.setdefault((kind, decoding, prompt), new_sample)
                    sample["outputs"].append((model_title(model), visible_text(str(row.get("text", "")))))
    return list(samples.values())


def continuations(run: Run, models: Iterable[str]) -> list[dict[str, Any]]:
    """The first PROMPTS prompts, and what each model goes on with, its likeliest token at every step: `prompt`, `outputs`."""
    rows = [row for row in generated_samples(run, models) if row["about"] == "prompt, greedy decoding"]
    return [{key: row[key] for key in ("prompt", "outputs")} for row in rows[:PROMPTS]]
