"""The page's tables and tiles, as plain rows of text made from the run's numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from scripts.models.registry import BASE
from scripts.report import tasks
from scripts.report.candidates import missed
from scripts.report.models import Model, best, title, trained
from scripts.report.page import NOTHING, duration, integer, percent, short, significant, size
from scripts.report.records import Run, dig, json_lines, measured, metrics, number
from scripts.report.samples import UNSHOWABLE
from scripts.workflow import record

Fact = tuple[str, str, str]  # name, value with its unit, what it was measured on


def accuracy(questions: Any, key: str = "acc") -> str:
    """`41.3 % ± 1.6 %`: accuracy and its standard error, over documents where it is known, else that of lm-evaluation-harness."""
    over = {"acc": number(dig(questions, "stderr"))}.get(key)
    value, error = number(dig(questions, key)), number(dig(questions, f"{key}_stderr")) if over is None else over
    if value is None:
        return NOTHING
    return percent(value) + (f" ± {percent(error)}" if error is not None else "")


def parameters(facts: Any) -> Any:
    """The model's parameters of a training step's summary: a number, or `total` of {total, non_embedding}."""
    found = dig(facts, "parameters")
    return dig(found, "total") if isinstance(found, dict) else found


def measured_on(text: Any) -> str:
    """What a held-out loss was measured on."""
    if not number(dig(text, "documents")):
        return "no validation documents"
    count = dig(text, "documents")
    return f"{integer(count)} validation document{'s' * (count != 1)}, {size(dig(text, 'bytes'))}"


def tiles(counts: dict[str, Any], seconds: float | None) -> list[dict[str, str]]:
    """The numbers at the head of the page: name, value, unit, and what the value was measured on."""
    pretrain = counts["models"][0]["training"] or {}
    base, *others = [
        found for found in counts["models"] if found["name"] == BASE or (found["evaluation"] and trained(found))
    ]
    tuned = best(others)
    text = dig(base, "evaluation", "heldout_text") or {**(dig(counts, "corpus", "validation") or {}), **pretrain}
    asked = dig(tuned or base, "evaluation", "questions")
    notes = [
        words_on_choice(tuned, others),
        f"chance {percent(dig(asked, 'chance'))}",
        f"base model {accuracy(dig(base, 'evaluation', 'questions'))}" if tuned else "",
        f"{integer(dig(asked, 'items'))} held-out questions",
    ]
    corpus = dig(counts, "corpus", "train") or {}
    read = f"{size(corpus.get('bytes'))} of {integer(counts['documents_read'])} crawl records, {size(counts['bytes_read'])}"
    there = f"{short(dig(counts, 'tokens', 'train', 'tokens'))} tokens in the training corpus"
    begun = f"the weights of {given}" if (given := pretrain.get("start_from")) else "random weights"
    steps = pretrain.get("steps")
    if isinstance(steps, int):  # those of a branch are its own
        steps -= pretrain.get("after_step", 0)
    answered = "; ".join(filter(None, notes)) if asked else "not measured"
    made = [
        ("Trained on", short(pretrain.get("tokens")), "tokens seen", there),
        ("Model", short(parameters(pretrain)), "parameters", f"{integer(steps)} optimizer steps from {begun}"),
        ("Held-out text", significant(dig(text, "bits_per_byte")), "bits per byte", f"base model, {measured_on(text)}"),
        *(moved := tasks.tile(counts)),
        (f"Accuracy, {tuned['name']}" if tuned else "Accuracy", accuracy(asked), "", answered),
        ("Corpus", integer(corpus.get("documents")), "documents", read),
        ("Time", duration(seconds), "", "wall-clock, summed over all tasks"),
    ]  # fmt: skip
    made = [row for row in made if not (moved and row[0].startswith("Accuracy"))]  # it stands near chance in small runs
    # A number that is not there needs no words on what it was measured on.
    made = [row if row[1] != NOTHING else (*row[:2], "", "not measured") for row in made]
    return [dict(zip(("name", "value", "unit", "note"), row, strict=True)) for row in made]


def words_on_choice(tuned: dict[str, Any] | None, others: list[dict[str, Any]]) -> str:
    """Why the tile is of this one of several fine-tuned models; "" where there are no several."""
    if len(others) < 2 or tuned is None:
        return ""
    least = all(number(dig(found, "training", "heldout_loss_after")) is not None for found in others)
    return f"the {'lowest held-out loss' if least else 'last'} of {len(others)} fine-tuned models"


def lead(counts: dict[str, Any]) -> str:
    """The page's first sentence."""
    pretrain, train = counts["models"][0]["training"] or {}, dig(counts, "corpus", "train") or {}
    if not pretrain:
        return "No model has been trained in this run yet."
    begun = f"from {given}" if (given := pretrain.get("start_from")) else "from scratch"
    return (
        f"A model of {short(parameters(pretrain))} parameters, trained {begun} on "
        f"{short(pretrain.get('tokens'))} tokens of {integer(train.get('documents'))} documents."
    )


def splits(counts: dict[str, Any]) -> list[dict[str, Any]]:
    """Training and validation: documents, bytes of text, tokens; none before there is a corpus."""
    rows: list[dict[str, Any]] = []
    if not any(counts["corpus"].values()) and not any(counts["tokens"].values()):
        return rows
    for name in ("train", "validation"):
        corpus, tokens = dig(counts, "corpus", name) or {}, dig(counts, "tokens", name) or {}
        text, number_of = number(tokens.get("bytes", corpus.get("bytes"))), number(tokens.get("tokens"))
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
    """Documents and bytes by source, extracted and kept, and tokens of both splits."""
    before = run.summary("ingest.extract", "by_source") or {}
    after = run.summary("corpus.write", "by_source") or {}
    encoded = run.summary("tokenize.encode", "by_source") or {}
    rows = []
    for name in sorted(before):
        tokens = [number(dig(split, name, "tokens")) or 0 for split in encoded.values()]
        rows.append(
            {
                "name": name,
                "documents": dig(before, name, "documents"),
                "bytes": dig(before, name, "bytes"),
                "kept_documents": dig(after, name, "documents") if name in after else (0 if after else None),
                "kept_bytes": dig(after, name, "bytes") if name in after else (0 if after else None),
                "tokens": sum(tokens) if encoded else None,
            }
        )
    return rows


def missed_pairs(run: Run, config: dict[str, Any] | None) -> Fact | None:
    """The near-duplicate pairs that agree in no band, estimated; None where the run or its config does not tell."""
    counts = run.summary("dedup.select", "similarity")
    same = number(dig(config, "dedup", "select", "threshold"))
    bands, rows = (dig(config, "dedup", "signature", key) for key in ("bands", "rows"))
    if not isinstance(counts, list) or same is None or not isinstance(bands, int) or not isinstance(rows, int):
        return None
    found = f"{missed(counts, same, bands, rows):,.1f}"
    return (
        "Near-duplicate pairs not found",
        found,
        f"estimated: pairs at or above {same:.4g} that agree in none of {bands} bands",
    )


def source_exempt(run: Run) -> list[Fact]:
    """Of each filter the documents that stayed because their source skips it (`skip_filters`); none where there are none."""
    found = []
    for name in run.filters:
        why = "they took no part" if name == "dedup" else "it would have dropped them"
        if exempt := number(run.summary(f"{name}.select", "source_exempt")):
            found.append((f"Documents exempt from {name}", integer(exempt), f"of sources that skip it; {why}"))
    return found


def corpus_facts(run: Run, config: dict[str, Any] | None = None) -> list[Fact]:
    """Exempt documents, duplicates and the quality classifier in a few numbers."""
    dedup, train, select = run.summary("dedup.select"), run.summary("quality.train"), run.summary("quality.select")
    largest, heldout = dig(dedup, "largest"), dig(train, "heldout")
    passed, cut = dig(dedup, "pairs", "passed"), number(dig(dedup, "pairs", "cut"))
    exempt = number(run.summary("heuristics.select", "curated_exempt"))
    rows: list[Fact] = []
    if exempt:
        rows.append(("Curated documents exempt", integer(exempt), "a heuristic would have dropped them"))
    rows += source_exempt(run)
    if dedup is not None:
        size_ = dig(largest[0], "size") if isinstance(largest, list) and largest else None
        more = f"; {integer(cut)} were cut from overfull buckets" if cut else ""
        rows += [
            ("Duplicate clusters", integer(dig(dedup, "clusters")), "kept documents with at least one duplicate"),
            ("Largest cluster", integer(size_), "documents, the kept one included"),
            ("Candidate pairs", integer(dig(dedup, "pairs", "verified")), f"exact similarity computed for each{more}"),
            ("Near-duplicate pairs", integer(passed), "candidate pairs at or above the threshold"),
        ]
        verified = number(dig(dedup, "pairs", "verified"))
        if verified and number(passed) is not None:
            share = significant(100 * (verified - (number(passed) or 0)) / verified)
            rows.append(("False candidates", f"{share} %", "of the candidate pairs, measured: below the threshold"))
        if misses := missed_pairs(run, config):
            rows.append(misses)
        if earlier := number(dig(dedup, "earlier")):
            rows.append(("Duplicates of earlier corpora", integer(earlier), "dropped for a document of an export"))
    if near := dig(run.summary("corpus.split"), "near_duplicates"):
        what = f"training documents with a similarity of {near['similarity']:.4g} or more to a validation document"
        gone = " that were dropped" if dig(run.counts("corpus.split"), "dropped") else ""
        rows.append(("Near-duplicates across the split", integer(near["documents"]), what + gone))
    if train is not None:
        on = f"{integer(dig(heldout, 'positives'))} curated and {integer(dig(heldout, 'negatives'))} other held-out documents"
        auc = number(dig(train, "roc_auc"))
        rows.append(("ROC-AUC of the classifier", significant(auc), on if auc is not None else "not measured"))
    if dig(select, "threshold") is not None:
        rows.append(("Quality threshold", significant(dig(select, "threshold")), "classifier score from 0 to 1"))
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


def tokens_a_parameter(facts: dict[str, Any]) -> str:
    """Tokens of a pre-training for each weight of the model; embeddings among them."""
    tokens, weights = number(facts.get("tokens")), number(parameters(facts))
    return significant(tokens / weights, 3) if tokens and weights else NOTHING


def training_facts(facts: dict[str, Any]) -> list[Fact]:
    """A training step's summary as rows; what it does not measure is left out."""
    held = f"{integer(facts.get('heldout_tokens'))} tokens of {integer(facts.get('heldout_pairs'))} held-out pairs"
    answers = f"nats per answer token, {held}"
    best = dig(facts, "early_stop", "best_step")
    when = f"after step {integer(best)}, whose weights the model has" if best else "after the last step"
    scored = (
        f"{integer(facts.get('validation_tokens'))} validation tokens, {size(facts.get('validation_bytes'))}, {when}"
    )
    rows = [
        ("Parameters", integer(parameters(facts)), "weights of the model"),
        ("Without embeddings", integer(dig(facts, "parameters", "non_embedding")), "parameters"),
        ("Tokens seen", integer(facts.get("tokens")), "training tokens, repeated passes counted"),
        ("Tokens a parameter", tokens_a_parameter(facts), "20 in Hoffmann et al. 2022 (Chinchilla)"),
        ("Epochs", significant(facts.get("epochs"), 3), "passes over the training corpus"),
        ("Training pairs", integer(facts.get("pairs")), "questions with their answers, from training documents"),
        ("Optimizer steps", integer(facts.get("steps")), ""),
        ("Training loss, first", significant(facts.get("loss_first")), "nats per token, first step"),
        (
            "Training loss, last",
            significant(facts.get("loss_last", facts.get("loss"))),
            f"nats per token, {f'step {integer(best)}' if best else 'last step'}",
        ),
        ("Validation loss", significant(facts.get("validation_loss")), f"nats per token, {scored}"),
        ("Validation bits per byte", significant(facts.get("bits_per_byte")), scored),
        *(
            (f"Validation bits per byte: {name}", significant(dig(part, "bits_per_byte")), measured_on(part))
            for name, part in (facts.get("validation_by_source") or {}).items()
        ),
        ("Held-out loss before", significant(facts.get("heldout_loss_before")), answers),
        ("Held-out loss after", significant(facts.get("heldout_loss_after")), answers),
    ]
    return [row for row in rows if row[1] != NOTHING]


def progress(run: Run, model: Model, config: dict[str, Any] | None) -> list[Fact]:
    """How far a training that is not finished has come, by what it wrote last; nothing for a finished one."""
    if (folder := run.training.get((model.step, model.task))) is None:
        return []
    rows = metrics(run, model.step, model.task)
    last = {key: row[key] for row in rows for key in row if number(row[key]) is not None}
    wanted = number(dig(config, *model.step.split("."), "steps"))
    written = max((path.stat().st_mtime for path in measured(folder)), default=None)
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(written)) if written else NOTHING
    found: list[Fact] = [
        ("Steps so far", integer(last.get("step")), f"of {integer(wanted)} optimizer steps" if wanted else "optimizer steps"),
        ("Tokens so far", integer(last.get("tokens")), "training tokens, repeated passes counted"),
        ("Training loss, latest", significant(last.get("loss")), "nats per token"),
        ("Validation loss, latest", significant(last.get("validation_loss")), "nats per token"),
        ("Validation bits per byte, latest", significant(last.get("bits_per_byte")), "bits per byte"),
        ("Throughput, latest", integer(last.get("tokens_per_second")), "training tokens a second"),
        ("Time so far", duration(last.get("seconds")), "of all attempts"),
        ("Last line written", at, "its losses and metrics, beside the checkpoints"),
    ]  # fmt: skip
    return [row for row in found if row[1] != NOTHING]


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
        return signed(dig(questions, "acc_z"))
    return signed((value - chance) / error)


def signed(value: Any) -> str:
    """`-1.25` → `−1.2`."""
    found = number(value)
    return NOTHING if found is None else f"{found:+.1f}".replace("-", "−")


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


def recorded(facts: dict[str, Any]) -> dict[str, str]:
    """What a record beside a manifest says of machine, devices and versions, as name → value."""
    found = {name: str(value) for name, value in (dig(facts, "machine") or {}).items() if name != "host"}
    if isinstance(devices := facts.get("devices"), dict):
        names = ", ".join(f"{count} × {name}" for name, count in devices.items())
        found["devices"] = f"{names}; {integer(facts.get('nodes'))} node{'s' * (facts.get('nodes') != 1)}"
    return found | {name: str(value) for name, value in (dig(facts, "versions") or {}).items()}


def machines(run: Run) -> list[dict[str, str]]:
    """What the steps ran on, from the records beside their manifests: `name`, `value`, `steps` where they differ."""
    seen: dict[str, dict[str, list[str]]] = {}
    for step, manifests in run.manifests.items():
        for manifest in manifests:
            for name, value in recorded(record.read(manifest.path)).items() if manifest.path else ():
                of = seen.setdefault(name, {}).setdefault(value, [])
                of += [step] * (step not in of)
    return [
        {"name": name, "value": value, "steps": ", ".join(of) if len(values) > 1 or name == "devices" else ""}
        for name, values in seen.items()
        for value, of in values.items()
    ]


def accepted(run: Run) -> list[dict[str, Any]]:
    """What a person accepted as made by later settings or code: `step`, `tasks`, `changes`, `reason`, `when` (workflow/accept.py)."""
    seen: dict[tuple[str, str, str, str], int] = {}
    for step, manifests in run.manifests.items():
        for manifest in manifests:
            for entry in record.accepted(manifest.path, manifest.fingerprint) if manifest.path else ():
                key = (step, "; ".join(entry["changes"]), entry["reason"], entry["when"])
                seen[key] = seen.get(key, 0) + 1
    return [
        {"step": step, "tasks": number, "changes": changes, "reason": reason, "when": when}
        for (step, changes, reason, when), number in seen.items()
    ]


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
