"""What evaluate.model found, as the report's table of models, and what they generated side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from crawl2llm.core.console import form
from crawl2llm.formats.run_records import Run, dig, json_lines, number
from crawl2llm.stages.report.models import title, trained
from crawl2llm.stages.report.page import NOTHING, integer, percent, signed, significant, size
from crawl2llm.stages.report.samples import UNSHOWABLE

PROMPTS = 3  # that a run's last lines show


def accuracy(questions: Any, key: str = "acc") -> str:
    """`41.3 % ± 1.6 %`: accuracy and its standard error, over documents where it is known, else that of lm-evaluation-harness."""
    over = {"acc": number(dig(questions, "stderr"))}.get(key)
    value, error = number(dig(questions, key)), number(dig(questions, f"{key}_stderr")) if over is None else over
    if value is None:
        return NOTHING
    return percent(value) + (f" ± {percent(error)}" if error is not None else "")


def measured_on(text: Any) -> str:
    """What a held-out loss was measured on."""
    if not number(dig(text, "documents")):
        return "no validation documents"
    count = dig(text, "documents")
    return f"{integer(count)} validation {form(count, 'document')}, {size(dig(text, 'bytes'))}"


def evaluation(run: Run, made: list[dict[str, Any]]) -> dict[str, Any]:
    """The evaluation table (models as columns) and the generated samples side by side. made: `models` of counts.json.

    A model that was not trained has no column: it is the one that it is made from.
    """
    shown = [model for model in made if model["evaluation"] and trained(model)]
    results = [model["evaluation"] for model in shown]
    text, questions, tasks = (
        next((dig(found, part) for found in results if dig(found, part)), None)
        for part in ("heldout_text", "questions", "tasks")
    )
    held, asked = measured_on(text), f"{integer(dig(questions, 'items'))} held-out questions"
    plan: list[tuple[str, str, Callable[[Any], str], tuple[str, ...]]] = [
        ("Loss", f"nats per token; {held}", significant, ("heldout_text", "loss")),
        ("Perplexity", f"per token; {held}", significant, ("heldout_text", "perplexity")),
        ("Bits per byte", held, significant, ("heldout_text", "bits_per_byte")),
        *(
            (f"Bits per byte: {name}", measured_on(part), significant, ("heldout_text", "by_source", name, "bits_per_byte"))
            for name, part in (dig(text, "by_source") or {}).items()
        ),
        ("Accuracy ± standard error", asked, accuracy, ("questions",)),
        ("Accuracy by likelihood per character", asked, percent, ("questions", "acc_norm")),
        ("Chance", "accuracy of a guess", percent, ("questions", "chance")),
        ("Distance from chance", "standard errors", distance, ("questions",)),
    ]  # fmt: skip
    for task in sorted({name for found in results for name in dig(found, "tasks", "results") or {}}):
        on = f"{integer(dig(tasks, 'results', task, 'items'))} items"
        plan.append((f"{task}: accuracy", on, accuracy, ("tasks", "results", task)))
    rows = [
        {"name": name, "cells": [write(dig(found, *keys)) for found in results], "note": note}
        for name, note, write, keys in plan
    ]
    about = ["The same held-out data for all models."] if len(shown) > 1 else []
    if left := [model["name"] for model in made if not trained(model)]:
        about.append(f"Without a column, for nothing was trained: {', '.join(left)}.")
    return {
        "about": " ".join(about),
        "models": [{"title": title(model["name"]), "from": model["from"]} for model in shown],
        "rows": [row for row in rows if any(cell != NOTHING for cell in row["cells"])],
        "samples": generated(run, [model["name"] for model in shown]),
    }


def distance(questions: Any) -> str:
    """`+1.2`: the standard errors, as `accuracy` shows them, between an accuracy and that of a guess."""
    value, chance, error = (number(dig(questions, key)) for key in ("acc", "chance", "stderr"))
    if value is None or chance is None or not error:
        return signed(dig(questions, "acc_z"), 1)
    return signed((value - chance) / error, 1)


def visible(text: str) -> str:
    """A generated text, or words in brackets for one that a reader would not see."""
    if not text.strip():
        return f"[{integer(len(text))} characters of white space]" if text else "[nothing]"
    return UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def generated(run: Run, models: Iterable[str]) -> list[dict[str, Any]]:
    """Samples by what was asked: `prompt`, `about`, `reference` and `outputs`, (model, text) for every model."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for model in models:
        manifest = run.task("evaluate.model", model)
        for name in manifest.files if manifest else ():
            if not (manifest and name.endswith("samples.jsonl")):
                continue
            with run.reading(manifest.file(name)):
                for row in json_lines(manifest.file(name)):
                    prompt = str(row.get("question") or row.get("prompt") or "")
                    kind, decoding = str(row.get("kind", "prompt")), str(row.get("decoding", ""))
                    about, reference = f"{kind}, {decoding} decoding", row.get("reference")
                    new: dict[str, Any] = {"prompt": prompt, "about": about, "outputs": [], "reference": reference}
                    here = found.setdefault((kind, decoding, prompt), new)
                    here["outputs"].append((title(model), visible(str(row.get("text", "")))))
    return list(found.values())


def continued(run: Run, models: Iterable[str]) -> list[dict[str, Any]]:
    """The first PROMPTS prompts, and what each model goes on with, its likeliest token at every step: `prompt`, `outputs`."""
    rows = [row for row in generated(run, models) if row["about"] == "prompt, greedy decoding"]
    return [{key: row[key] for key in ("prompt", "outputs")} for row in rows[:PROMPTS]]
