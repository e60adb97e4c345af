"""The page's tables and tiles, as plain rows of text made from the run's numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scripts.report.page import NOTHING, duration, integer, percent, short, significant, size
from scripts.report.records import Run, dig, json_lines, number

MODELS = {"pretrain": "Base model", "finetune": "Fine-tuned"}
Fact = tuple[str, str, str]  # name, value with its unit, what it was measured on


def accuracy(result: Any) -> str:
    """`41.3 % ± 1.6 %`, accuracy and its standard error."""
    value, error = number(dig(result, "accuracy")), number(dig(result, "accuracy_stderr"))
    if value is None:
        return NOTHING
    return percent(value) + (f" ± {percent(error)}" if error is not None else "")


def tiles(counts: dict[str, Any], seconds: float | None) -> list[dict[str, str]]:
    """The numbers at the head of the page: name, value, unit, and what the value was measured on."""
    pretrain, evaluation = counts["pretrain"] or {}, counts["evaluation"]
    base, tuned = evaluation.get("pretrain"), evaluation.get("finetune")
    held = dig(counts, "corpus", "validation") or {}
    bits = number(dig(base, "bits_per_byte")) or number(pretrain.get("bits_per_byte"))
    best = tuned or base
    others = [f"base model {accuracy(base)}"] if tuned and base else []
    chance = number(dig(best, "chance"))
    answers = number(dig(best, "questions"))
    notes = [f"chance {percent(chance)}" if chance is not None else "", *others]
    notes.append(f"{integer(answers)} held-out questions" if answers is not None else "")
    made = [
        ("Trained on", short(pretrain.get("tokens")), "tokens seen", f"{short(dig(counts, 'tokens', 'train', 'tokens'))} tokens in the training corpus"),
        ("Model", short(pretrain.get("parameters")), "parameters", f"{integer(pretrain.get('steps'))} optimizer steps from random weights"),
        ("Held-out text", significant(bits), "bits per byte", f"base model, {integer(held.get('documents'))} validation documents, {size(held.get('bytes'))}"),
        ("Accuracy" if not tuned else "Accuracy, fine-tuned", accuracy(best), "", "; ".join(filter(None, notes))),
        ("Corpus", integer(dig(counts, "corpus", "train", "documents")), "documents", f"{size(dig(counts, 'corpus', 'train', 'bytes'))} of {integer(counts['documents_read'])} crawl records, {size(counts['bytes_read'])}"),
        ("Time", duration(seconds), "", "wall-clock, summed over all tasks"),
    ]  # fmt: skip
    return [dict(zip(("name", "value", "unit", "note"), row, strict=True)) for row in made]


def lead(counts: dict[str, Any]) -> str:
    """The page's first sentence."""
    pretrain, train = counts["pretrain"] or {}, dig(counts, "corpus", "train") or {}
    if not pretrain:
        return "No model has been trained in this run."
    return (
        f"A model of {short(pretrain.get('parameters'))} parameters, trained from scratch on "
        f"{short(pretrain.get('tokens'))} tokens of {integer(train.get('documents'))} documents."
    )


def splits(counts: dict[str, Any]) -> list[dict[str, Any]]:
    """Training and validation: documents, bytes of text, tokens."""
    rows = []
    for name in ("train", "validation"):
        corpus, tokens = dig(counts, "corpus", name) or {}, dig(counts, "tokens", name) or {}
        text, number_of = number(corpus.get("bytes")), number(tokens.get("tokens"))
        rate = text / number_of if text and number_of else None
        rows.append(
            {
                "name": name,
                **{k: corpus.get(k) for k in ("documents", "bytes")},
                "tokens": number_of,
                "bytes_per_token": rate,
            }
        )
    return rows


def sources(run: Run) -> list[dict[str, Any]]:
    """Documents and bytes by source, extracted and kept."""
    before = run.summary("ingest.extract", "by_source") or {}
    after = run.summary("corpus.write", "by_source") or {}
    rows = []
    for name in sorted(before):
        rows.append(
            {
                "name": name,
                "documents": dig(before, name, "documents"),
                "bytes": dig(before, name, "bytes"),
                "kept_documents": dig(after, name, "documents") if name in after else (0 if after else None),
                "kept_bytes": dig(after, name, "bytes") if name in after else (0 if after else None),
            }
        )
    return rows


def corpus_facts(run: Run) -> list[Fact]:
    """Duplicates and the quality classifier in a few numbers."""
    dedup, train, select = run.summary("dedup.select"), run.summary("quality.train"), run.summary("quality.select")
    heldout = dig(train, "heldout") or {}
    rows = []
    if dedup is not None:
        rows += [
            ("Duplicate clusters", integer(dig(dedup, "cluster_count")), "kept documents with at least one duplicate"),
            ("Largest cluster", integer(dig(dedup, "largest")), "documents, the kept one included"),
            ("Candidate pairs", integer(dig(dedup, "pairs")), "pairs whose exact similarity was computed"),
        ]
    if train is not None:
        on = f"{integer(heldout.get('positives'))} curated and {integer(heldout.get('negatives'))} other held-out documents"
        rows.append(("ROC-AUC of the classifier", significant(dig(train, "roc_auc")), on))
    if select is not None and dig(select, "threshold") is not None:
        rows.append(("Quality threshold", significant(select["threshold"]), "classifier score from 0 to 1"))
    return rows


def tokenizer(run: Run) -> dict[str, Any]:
    """The tokenizer's size, its bytes per token, and its longest tokens as they are shown."""
    facts = run.summary("tokenize.train") or {}
    longest = []
    for token in facts.get("longest_tokens") or []:
        text = token if isinstance(token, str) else str(dig(token, "token") or token)
        longest.append(text.replace(" ", "␣").replace("Ġ", "␣").replace("\n", "⏎"))
    keys = ("vocabulary", "bytes_per_token", "measured_bytes")
    return {**{key: facts.get(key) for key in keys}, "longest": longest}


def training_facts(facts: dict[str, Any] | None) -> list[Fact]:
    """A training step's summary as rows."""
    if not facts:
        return []
    rows = [
        ("Parameters", integer(facts.get("parameters")), "weights of the model"),
        ("Tokens seen", integer(facts.get("tokens")), "training tokens, repeated passes counted"),
        ("Optimizer steps", integer(facts.get("steps")), ""),
        ("Training loss", significant(facts.get("loss")), "nats per token, at the end"),
        ("Validation loss", significant(facts.get("validation_loss")), "nats per token, at the end"),
        ("Validation bits per byte", significant(facts.get("bits_per_byte")), "at the end"),
    ]
    return [row for row in rows if row[1] != NOTHING]


def evaluation(run: Run, results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The evaluation table (models as columns) and the generated samples side by side."""
    models = [model for model in MODELS if model in results]
    first = results[models[0]] if models else {}
    held = (
        f"{integer(dig(first, 'documents'))} validation documents"
        if dig(first, "documents")
        else "validation documents"
    )
    asked = (
        f"{integer(dig(first, 'questions'))} held-out questions" if dig(first, "questions") else "held-out questions"
    )
    plan = [
        ("Loss", "loss", significant, f"nats per token, {held}"),
        ("Perplexity", "perplexity", significant, f"per token, {held}"),
        ("Bits per byte", "bits_per_byte", significant, held),
        ("Accuracy ± standard error", None, None, asked),
        ("Chance", "chance", percent, "accuracy of a guess"),
    ]
    rows = []
    for name, key, write, note in plan:
        values = [accuracy(results[m]) if key is None or write is None else write(results[m].get(key)) for m in models]
        if any(value != NOTHING for value in values):
            rows.append({"name": name, "cells": values, "note": note})
    return {
        "about": "The same held-out data for both models.",
        "models": [MODELS[model] for model in models],
        "rows": rows,
        "samples": generated(run, models),
    }


def generated(run: Run, models: Iterable[str]) -> list[dict[str, Any]]:
    """Samples by prompt: the prompt and (model, generated text) for every model that was given it."""
    found: dict[str, dict[str, Any]] = {}
    for model in models:
        manifest = run.task("evaluate.model", model)
        for name in manifest.files if manifest else ():
            if manifest and name.endswith("samples.jsonl"):
                for row in json_lines(manifest.file(name)):
                    prompt = str(row.get("prompt", ""))
                    here = found.setdefault(prompt, {"prompt": prompt, "outputs": [], "reference": row.get("answer")})
                    here["outputs"].append((MODELS[model], str(row.get("text", ""))))
    return list(found.values())


def steps(run: Run, page: Path) -> list[dict[str, Any]]:
    """Every step's tasks, files, size, fingerprint, and its folder relative to the page."""
    rows = []
    for step, manifests in run.manifests.items():
        facts = [fact for manifest in manifests for fact in manifest.files.values()]
        rows.append(
            {
                "step": step,
                "tasks": len(manifests),
                "files": len(facts),
                "bytes": sum(fact["bytes"] for fact in facts),
                "fingerprint": manifests[0].fingerprint,
                "link": Path(os.path.relpath(manifests[0].folder, page.parent)).as_posix() + "/",
            }
        )
    return rows
