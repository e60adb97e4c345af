"""The page's tables and tiles, as plain rows of text made from the run's numbers."""

from __future__ import annotations

import time
from typing import Any

from crawl2llm.chain.model_registry import BASE, BASE_STEP
from crawl2llm.chain.steps import MIX, PLAN
from crawl2llm.formats.run_records import Run, dig, measured, metrics, number
from crawl2llm.stages.report import synthesis_table, training_gains
from crawl2llm.stages.report.candidates import missed
from crawl2llm.stages.report.model_table import accuracy, measured_on
from crawl2llm.stages.report.models import Model, best, comparable, trained
from crawl2llm.stages.report.page import NOTHING, duration, integer, percent, short, significant, size

Fact = tuple[str, str, str]  # name, value with its unit, what it was measured on


def parameters(facts: Any) -> Any:
    """The model's parameters of a training step's summary: a number, or `total` of {total, non_embedding}."""
    found = dig(facts, "parameters")
    return dig(found, "total") if isinstance(found, dict) else found


def tiles(counts: dict[str, Any], seconds: float | None) -> list[dict[str, str]]:
    """The numbers at the head of the page: name, value, unit, and what the value was measured on."""
    pretrain = counts["models"][0]["training"] or {}
    base, *others = [
        found
        for found in counts["models"]
        if found["name"] == BASE
        or (found["evaluation"] and trained(found) and not dig(found, "training", "bytes_before"))
    ]  # one that is the same in fewer bytes is not the best fine-tuned one
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
    read = (
        f"{size(corpus.get('bytes'))} of text, from {integer(counts['documents_read'])} crawl records in {size(counts['bytes_read'])} of "
        "files as stored, mostly compressed"
    )
    there = f"{short(dig(counts, 'tokens', 'train', 'tokens'))} tokens in the training corpus"
    begun = f"the weights of {given}" if (given := pretrain.get("start_from")) else "random weights"
    steps = pretrain.get("steps")
    if isinstance(steps, int):  # those of a branch are its own
        steps -= pretrain.get("after_step", 0)
    answered = "; ".join(filter(None, notes)) if asked else "not measured"
    made = [
        ("Trained on", short(pretrain.get("tokens")), "tokens seen", there),
        ("Model", short(parameters(pretrain)), "parameters", f"{integer(steps)} optimizer steps from {begun}"),
        (
            "Held-out text",
            significant(dig(text, "bits_per_byte")),
            "bits per byte",
            f"base model, {measured_on(text)}{training_gains.text_beside(counts)}",
        ),
        *(others_moved := training_gains.tiles(counts, tuned, words_on_choice(tuned, others))),
        (f"Accuracy, {tuned['name']}" if tuned else "Accuracy", accuracy(asked), "", answered),
        ("Corpus", integer(corpus.get("documents")), "documents", read),
        ("Time", duration(seconds), "", "wall-clock, summed over all tasks"),
    ]  # fmt: skip
    made = [
        row for row in made if not (others_moved and row[0].startswith("Accuracy"))
    ]  # it stands near chance in small runs
    # A number that is not there needs no words on what it was measured on.
    made = [row if row[1] != NOTHING else (*row[:2], "", "not measured") for row in made]
    return [dict(zip(("name", "value", "unit", "note"), row, strict=True)) for row in made]


def words_on_choice(tuned: dict[str, Any] | None, others: list[dict[str, Any]]) -> str:
    """Why the tile is of this one of several fine-tuned models; "" where there are no several."""
    if len(others) < 2 or tuned is None:
        return ""
    if known := comparable(others):
        return f"the lowest held-out loss of {len(known)} fine-tuned models"
    return f"the last of {len(others)} fine-tuned models, which have no loss over the same held-out pairs"


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
    """Documents and bytes by source, extracted and kept, tokens of both splits and bytes per token, and how often the base model's training
    reads it: by its mix, or as all text; unknown under a mix of other groups.
    """
    before = run.summary("ingest.extract", "by_source") or {}
    after = run.summary("corpus.write", "by_source") or {}
    encoded = run.summary("tokenize.encode", "by_source") or {}
    rows = []
    for name in sorted(before):
        tokens, bytes_ = (
            sum(number(dig(split, name, key)) or 0 for split in encoded.values()) for key in ("tokens", "bytes")
        )
        rows.append(
            {
                "name": name,
                "documents": dig(before, name, "documents"),
                "bytes": dig(before, name, "bytes"),
                "kept_documents": dig(after, name, "documents") if name in after else (0 if after else None),
                "kept_bytes": dig(after, name, "bytes") if name in after else (0 if after else None),
                "tokens": tokens if encoded else None,
                "bytes_per_token": bytes_ / tokens if tokens else None,
                "epochs": epochs(run, name),
            }
        )
    return rows


def epochs(run: Run, source: str) -> float | None:
    """How often the base model's training reads a source: as pretrain.mix drew it, else as all text; None where that is unknown."""
    mix = run.fact(MIX) or {}
    if mix:
        return number(dig(mix, "groups", source, "epochs")) if mix["by"] == "source" else None
    return number(run.fact(BASE_STEP, "epochs")) or number(run.fact(PLAN, "epochs"))


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


def thresholds(run: Run) -> list[dict[str, Any]]:
    """By language and rule the threshold that heuristics.calibrate derived, beside that for all; none where the run has no such step."""
    found = run.fact("heuristics.calibrate", "thresholds") or {}
    every = run.fact("heuristics.select", "thresholds") or {}
    documents = run.fact("heuristics.calibrate", "documents") or {}
    return [
        {
            "language": language,
            "documents": integer(documents.get(language)),
            "rule": rule,
            "threshold": f"{value:.4g}",
            "every": significant(every.get(rule)),
        }
        for language, rules in found.items()
        for rule, value in rules.items()
    ]


def source_exempt(run: Run) -> list[Fact]:
    """Of each filter the documents that stayed because their source skips it (`skip_filters`); none where there are none."""
    found = []
    for name in run.filters:
        why = "they took no part" if name == "dedup" else "it would have dropped them"
        if exempt := number(run.summary(f"{name}.select", "source_exempt")):
            found.append((f"Documents exempt from {name}", integer(exempt), f"of sources that skip it; {why}"))
    return found


def unreadable_values(run: Run) -> list[Fact]:
    """How many values beside the texts could not be read, by source and column; no row if there are none."""
    columns = [
        (number, f"{source}: {column} {integer(number)}")
        for source, found in (run.summary("ingest.extract", "unreadable") or {}).items()
        for column, number in found.items()
    ]
    if not columns:
        return []
    what = ", ".join(words for _, words in sorted(columns, key=lambda row: (-row[0], row[1])))
    return [("Values beside the texts not read", integer(sum(n for n, _ in columns)), f"null in the documents; {what}")]


def corpus_facts(run: Run, config: dict[str, Any] | None = None) -> list[Fact]:
    """Exempt documents, duplicates and the quality classifier in a few numbers."""
    dedup, train, select = run.summary("dedup.select"), run.summary("quality.train"), run.summary("quality.select")
    largest, heldout = dig(dedup, "largest"), dig(train, "heldout")
    passed, cut = dig(dedup, "pairs", "passed"), number(dig(dedup, "pairs", "cut"))
    exempt = number(run.summary("heuristics.select", "curated_exempt"))
    rows: list[Fact] = [*synthesis_table.facts(run), *unreadable_values(run)]
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
        (
            "Quantized parameters",
            integer(facts.get("quantized_parameters")),
            f"{facts.get('method')}, in {facts.get('quantized_layers')} linear layers",
        ),
        ("Weights on the disk", size(facts.get("bytes")), f"instead of {size(facts.get('bytes_before'))}"),
        (
            "Relative error of the weights",
            percent(facts.get("weight_error"), 2),
            f"worst {percent(facts.get('worst_error'), 2)}, {facts.get('worst_layer')}",
        ),
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
        ("Parameters before", integer(facts.get("parameters_before")), "of the model that was pruned"),
        ("Weights that are zero", integer(facts.get("zeros")), f"of {integer(facts.get('prunable'))} in linear layers"),
        ("Layers", integer(facts.get("layers")), f"of {facts.get('layers_before')}"),
        ("Heads of a layer", integer(facts.get("heads")), f"of {facts.get('heads_before')}"),
        ("Neurons of a layer", integer(facts.get("neurons")), f"of {facts.get('neurons_before')}"),
        ("Held-out loss, pruned", significant(facts.get("pruned_loss_before")), "nats per token, before the training"),
        ("Held-out loss, trained", significant(facts.get("pruned_loss_after")), "nats per token, after the training"),
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
