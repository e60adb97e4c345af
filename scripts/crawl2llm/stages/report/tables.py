"""The page's tables and tiles, as plain rows of text made from the run's numbers."""

from __future__ import annotations

import time
from typing import Any

from crawl2llm.chain.model_registry import BASE_STEP, PUBLISHED_STEP
from crawl2llm.chain.steps import MIX, PLAN
from crawl2llm.core import record
from crawl2llm.core.console import singular_or_plural
from crawl2llm.formats.model_summaries import parameter_count
from crawl2llm.formats.run_records import Run, finite_number, measurement_files, nested_value, training_metrics
from crawl2llm.stages.report import published_table, synthesis_table, training_gains
from crawl2llm.stages.report.candidates import expected_missed_pairs
from crawl2llm.stages.report.model_table import accuracy_text, heldout_size_text
from crawl2llm.stages.report.models import Model, best_model, comparable_models, is_trained, words_of_model
from crawl2llm.stages.report.page import (
    NOTHING,
    format_bytes,
    format_duration,
    format_integer,
    format_percent,
    format_short,
    format_significant,
)

Fact = tuple[str, str, str]  # name, value with its unit, what it was measured on


def overview_tiles(counts: dict[str, Any], seconds: float | None) -> list[dict[str, str]]:
    """The numbers at the head of the page: name, value, unit, and what the value was measured on."""
    pretrain = counts["models"][0]["training"] or {}
    base = counts["models"][0]
    published = base["step"] == PUBLISHED_STEP
    of_base = words_of_model(base["name"])
    candidates = [
        model
        for model in counts["models"][1:]
        if model.get("step") != PUBLISHED_STEP
        and (model["evaluation"] and is_trained(model) and not nested_value(model, "training", "bytes_before"))
    ]  # one that is the same in fewer bytes is not the best fine-tuned one
    tuned = best_model(candidates)
    text = nested_value(base, "evaluation", "heldout_text") or {
        **(nested_value(counts, "corpus", "validation") or {}),
        **pretrain,
    }
    questions = nested_value(tuned or base, "evaluation", "questions")
    notes = [
        choice_note(tuned, candidates),
        f"chance {format_percent(nested_value(questions, 'chance'))}",
        f"{of_base} {accuracy_text(nested_value(base, 'evaluation', 'questions'))}" if tuned else "",
        f"{format_integer(nested_value(questions, 'items'))} held-out questions",
    ]
    corpus = nested_value(counts, "corpus", "train") or {}
    corpus_note = (
        f"{format_bytes(corpus.get('bytes'))} of text, from {format_integer(counts['documents_read'])} crawl records in "
        f"{format_bytes(counts['bytes_read'])} of files as stored, mostly compressed"
    )
    tokens_note = f"{format_short(nested_value(counts, 'tokens', 'train', 'tokens'))} tokens in the training corpus"
    start_words = f"the weights of {start_model}" if (start_model := pretrain.get("start_from")) else "random weights"
    steps = pretrain.get("steps")
    if isinstance(steps, int):  # those of a branch are its own
        steps -= pretrain.get("after_step", 0)
    accuracy_note = "; ".join(filter(None, notes)) if questions else "not measured"
    made_by = f"{format_integer(steps)} optimizer steps from {start_words}"
    rows = [
        *([] if published else [("Trained on", format_short(pretrain.get("tokens")), "tokens seen", tokens_note)]),
        ("Model", format_short(parameter_count(pretrain)), "parameters", f"published as {pretrain.get('name')}" if published else made_by),
        *(published_table.tuning_tiles(tuned) if published else []),
        (
            "Held-out text",
            format_significant(nested_value(text, "bits_per_byte")),
            "bits per byte",
            f"{of_base}, {heldout_size_text(text)}{training_gains.baseline_text(counts)}",
        ),
        *(gain_rows := training_gains.gain_tiles(counts, tuned, choice_note(tuned, candidates))),
        (f"Accuracy, {tuned['name']}" if tuned else "Accuracy", accuracy_text(questions), "", accuracy_note),
        ("Corpus", format_integer(corpus.get("documents")), "documents", corpus_note),
        ("Time", format_duration(seconds), "", "wall-clock, summed over all tasks"),
    ]  # fmt: skip
    rows = [
        row for row in rows if not (gain_rows and row[0].startswith("Accuracy"))
    ]  # it stands near chance in small runs
    # A number that is not there needs no words on what it was measured on.
    rows = [row if row[1] != NOTHING else (*row[:2], "", "not measured") for row in rows]
    return [dict(zip(("name", "value", "unit", "note"), row, strict=True)) for row in rows]


def choice_note(tuned: dict[str, Any] | None, candidates: list[dict[str, Any]]) -> str:
    """Why the tile is of this one of several fine-tuned models; "" if there are no several."""
    if len(candidates) < 2 or tuned is None:
        return ""
    if len(comparable := comparable_models(candidates)) > 1:
        return f"the lowest held-out loss of {len(comparable)} fine-tuned models"
    if comparable:
        return f"of {len(candidates)} fine-tuned models the one with a loss over held-out pairs"
    return f"the last of {len(candidates)} fine-tuned models, which have no loss over the same held-out pairs"


def lead_sentence(counts: dict[str, Any]) -> str:
    """The page's first sentence."""
    pretrain, train = counts["models"][0]["training"] or {}, nested_value(counts, "corpus", "train") or {}
    if not pretrain:
        return "No model has been trained in this run yet."
    if counts["models"][0]["step"] == PUBLISHED_STEP:
        documents = nested_value(counts, "corpus", "validation", "documents")
        return (
            f"This run begins with {pretrain['name']}, a published model of {format_short(pretrain['parameters'])} parameters, and "
            f"evaluates it on {format_integer(documents)} {singular_or_plural(documents, 'document')} of its own."
        )
    start_words = f"from {start_model}" if (start_model := pretrain.get("start_from")) else "from scratch"
    return (
        f"A model of {format_short(parameter_count(pretrain))} parameters, trained {start_words} on "
        f"{format_short(pretrain.get('tokens'))} tokens of {format_integer(train.get('documents'))} documents."
    )


def split_rows(counts: dict[str, Any]) -> list[dict[str, Any]]:
    """Training and validation: documents, bytes of text, tokens; none before there is a corpus."""
    rows: list[dict[str, Any]] = []
    if not any(counts["corpus"].values()) and not any(counts["tokens"].values()):
        return rows
    for name in ("train", "validation"):
        corpus, tokens = nested_value(counts, "corpus", name) or {}, nested_value(counts, "tokens", name) or {}
        text, number_of = finite_number(tokens.get("bytes", corpus.get("bytes"))), finite_number(tokens.get("tokens"))
        rate = text / number_of if text and number_of else None
        rows.append(
            {
                "name": name,
                **{key: corpus.get(key) for key in ("documents", "bytes")},
                "tokens": number_of,
                "bytes_per_token": rate,
            }
        )
    return rows


def source_rows(run: Run) -> list[dict[str, Any]]:
    """Documents and bytes by source, extracted and kept, tokens of both splits and bytes per token, and how often the base model's training
    reads it: by its mix, or as all text; unknown under a mix of other groups.
    """
    before = run.summary("ingest.extract", "by_source") or {}
    after = run.summary("corpus.write", "by_source") or {}
    encoded = run.summary("tokenize.encode", "by_source") or {}
    none_kept = 0 if after else None
    rows = []
    for name in sorted(before):
        tokens, bytes_ = (
            sum(finite_number(nested_value(split, name, key)) or 0 for split in encoded.values())
            for key in ("tokens", "bytes")
        )
        rows.append(
            {
                "name": name,
                "documents": nested_value(before, name, "documents"),
                "bytes": nested_value(before, name, "bytes"),
                "kept_documents": nested_value(after, name, "documents") if name in after else none_kept,
                "kept_bytes": nested_value(after, name, "bytes") if name in after else none_kept,
                "tokens": tokens if encoded else None,
                "bytes_per_token": bytes_ / tokens if tokens else None,
                "epochs": source_epochs(run, name),
            }
        )
    return rows


def source_epochs(run: Run, source: str) -> float | None:
    """How often the base model's training reads a source: as pretrain.mix drew it, else as all text; None if that is unknown."""
    mix = run.fact(MIX) or {}
    if mix:
        return finite_number(nested_value(mix, "groups", source, "epochs")) if mix["by"] == "source" else None
    return finite_number(run.fact(BASE_STEP, "epochs")) or finite_number(run.fact(PLAN, "epochs"))


def missed_pairs_fact(run: Run, config: dict[str, Any] | None) -> Fact | None:
    """The near-duplicate pairs that agree in no band, estimated; None if the run or its config does not tell."""
    counts = run.summary("dedup.select", "similarity")
    similarity_threshold = finite_number(nested_value(config, "dedup", "select", "threshold"))
    bands, rows = (nested_value(config, "dedup", "signature", key) for key in ("bands", "rows"))
    if (
        not isinstance(counts, list)
        or similarity_threshold is None
        or not isinstance(bands, int)
        or not isinstance(rows, int)
    ):
        return None
    estimate = f"{expected_missed_pairs(counts, similarity_threshold, bands, rows):,.1f}"
    return (
        "Near-duplicate pairs not found",
        estimate,
        f"estimated: pairs at or above {similarity_threshold:.4g} that agree in none of {bands} bands",
    )


def threshold_rows(run: Run) -> list[dict[str, Any]]:
    """By language and rule the threshold that heuristics.calibrate derived, beside that for all; none if the run has no such step."""
    derived = run.fact("heuristics.calibrate", "thresholds") or {}
    for_all = run.fact("heuristics.select", "thresholds") or {}
    documents = run.fact("heuristics.calibrate", "documents") or {}
    return [
        {
            "language": language,
            "documents": format_integer(documents.get(language)),
            "rule": rule,
            "threshold": f"{value:.4g}",
            "every": format_significant(for_all.get(rule)),
        }
        for language, rules in derived.items()
        for rule, value in rules.items()
    ]


def source_exempt_facts(run: Run) -> list[Fact]:
    """Of each filter the documents that stayed because their source skips it (`skip_filters`); none if there are none."""
    facts = []
    for name in run.filters:
        why = "they took no part" if name == "dedup" else "it would have dropped them"
        if exempt := finite_number(run.summary(f"{name}.select", "source_exempt")):
            facts.append((f"Documents exempt from {name}", format_integer(exempt), f"of sources that skip it; {why}"))
    return facts


def unreadable_facts(run: Run) -> list[Fact]:
    """How many values beside the texts could not be read, by source and column; no row if there are none."""
    columns = [
        (number, f"{source}: {column} {format_integer(number)}")
        for source, counts in (run.summary("ingest.extract", "unreadable") or {}).items()
        for column, number in counts.items()
    ]
    if not columns:
        return []
    details = ", ".join(words for _, words in sorted(columns, key=lambda row: (-row[0], row[1])))
    return [
        (
            "Values beside the texts not read",
            format_integer(sum(unread for unread, _ in columns)),
            f"null in the documents; {details}",
        )
    ]


def corpus_facts(run: Run, config: dict[str, Any] | None = None) -> list[Fact]:
    """Exempt documents, duplicates and the quality classifier in a few numbers."""
    dedup, train, select = run.summary("dedup.select"), run.summary("quality.train"), run.summary("quality.select")
    largest, heldout = nested_value(dedup, "largest"), nested_value(train, "heldout")
    passed, cut = nested_value(dedup, "pairs", "passed"), finite_number(nested_value(dedup, "pairs", "cut"))
    exempt = finite_number(run.summary("heuristics.select", "curated_exempt"))
    rows: list[Fact] = [*synthesis_table.synthesis_facts(run), *unreadable_facts(run)]
    if exempt:
        rows.append(("Curated documents exempt", format_integer(exempt), "a heuristic would have dropped them"))
    rows += source_exempt_facts(run)
    if dedup is not None:
        size_ = nested_value(largest[0], "size") if isinstance(largest, list) and largest else None
        cut_note = f"; {format_integer(cut)} were cut from overfull buckets" if cut else ""
        rows += [
            (
                "Duplicate clusters",
                format_integer(nested_value(dedup, "clusters")),
                "kept documents with at least one duplicate",
            ),
            ("Largest cluster", format_integer(size_), "documents, the kept one included"),
            (
                "Candidate pairs",
                format_integer(nested_value(dedup, "pairs", "verified")),
                f"exact similarity computed for each{cut_note}",
            ),
            ("Near-duplicate pairs", format_integer(passed), "candidate pairs at or above the threshold"),
        ]
        verified = finite_number(nested_value(dedup, "pairs", "verified"))
        if verified and finite_number(passed) is not None:
            share = format_significant(100 * (verified - (finite_number(passed) or 0)) / verified)
            rows.append(("False candidates", f"{share} %", "of the candidate pairs, measured: below the threshold"))
        if misses := missed_pairs_fact(run, config):
            rows.append(misses)
        if earlier := finite_number(nested_value(dedup, "earlier")):
            rows.append(
                ("Duplicates of earlier corpora", format_integer(earlier), "dropped for a document of an export")
            )
    if near := nested_value(run.summary("corpus.split"), "near_duplicates"):
        about = f"training documents with a similarity of {near['similarity']:.4g} or more to a validation document"
        dropped_note = " that were dropped" if nested_value(run.counts("corpus.split"), "dropped") else ""
        rows.append(("Near-duplicates across the split", format_integer(near["documents"]), about + dropped_note))
    if train is not None:
        positives = format_integer(nested_value(heldout, "positives"))
        on = f"{positives} curated and {format_integer(nested_value(heldout, 'negatives'))} other held-out documents"
        auc = finite_number(nested_value(train, "roc_auc"))
        rows.append(("ROC-AUC of the classifier", format_significant(auc), on if auc is not None else "not measured"))
    if nested_value(select, "threshold") is not None:
        rows.append(
            ("Quality threshold", format_significant(nested_value(select, "threshold")), "classifier score from 0 to 1")
        )
    return rows


def tokenizer_facts(run: Run, models: list[Model]) -> dict[str, Any]:
    """What models of the run have as tokenizers: the size and bytes per token of the run's own, and its longest tokens as they are shown
    if it was trained here; in `published` a row for each that came with a model. Without `base`, no model has the run's own.
    """
    published = published_table.tokenizer_rows(run, [model.name for model in models if model.step == PUBLISHED_STEP])
    if published and not any(model.step == BASE_STEP for model in models):
        return {"vocabulary": None, "longest": [], "published": published}
    facts = run.summary("tokenize.train") or {}
    longest = []
    for token in facts.get("longest_tokens") or []:
        text = token if isinstance(token, str) else str(nested_value(token, "token") or token)
        longest.append(text.replace(" ", "␣").replace("Ġ", "␣").replace("\n", "⏎"))
    keys = ("vocabulary", "bytes_per_token", "measured_bytes")
    is_ready = "differing_texts" in facts
    return {
        **{key: facts.get(key) for key in keys},
        "kind": "A ready tokenizer" if is_ready else "A tokenizer trained on this corpus",
        "longest": [] if is_ready else longest,
        "speed": recorded_speed(run, "tokenize.train"),
        "compared": tokenizer_comparison(run),
        "published": published,
    }


def recorded_speed(run: Run, step: str) -> Any:
    """Megabytes per second that a step of one task encoded, as its record says; of several tokenizers by name; None without."""
    manifest = run.task(step, "")
    return record.read(manifest.path).get("megabytes_per_second") if manifest and manifest.path else None


def tokenizer_comparison(run: Run) -> dict[str, Any]:
    """Bytes per token by language of a ready tokenizer and of one trained on the corpus: both vocabularies, speeds, a row for each
    language, the total first. Empty where none is compared.
    """
    summary = run.summary("tokenize.compare") or {}
    by_language = summary.get("by_language") or {}
    keys = ("documents", "bytes", "ready", "own")
    total = {key: sum(counts[key] for counts in by_language.values()) for key in keys}
    shown = {
        "all": total,
        **({name: counts for name, counts in by_language.items() if name} if len(by_language) > 1 else by_language),
    }
    rows = [
        {
            "language": name or "all",
            **{key: counts[key] for key in keys[:2]},
            **{key: counts["bytes"] / counts[key] if counts[key] else None for key in keys[2:]},
        }
        for name, counts in shown.items()
        if name
    ]
    return (
        {"vocabulary": summary["vocabulary"], "speed": recorded_speed(run, "tokenize.compare"), "rows": rows}
        if summary
        else {}
    )


def tokens_a_parameter(facts: dict[str, Any]) -> str:
    """Tokens of a pre-training for each weight of the model; embeddings among them."""
    tokens, weights = finite_number(facts.get("tokens")), finite_number(parameter_count(facts))
    return format_significant(tokens / weights, 3) if tokens and weights else NOTHING


def training_facts(facts: dict[str, Any]) -> list[Fact]:
    """A training step's summary as rows; what it does not measure is left out."""
    heldout_words = f"{format_integer(facts.get('heldout_tokens'))} tokens of {format_integer(facts.get('heldout_pairs'))} held-out pairs"
    answers = f"nats per answer token, {heldout_words}"
    best_step = nested_value(facts, "early_stop", "best_step")
    when = "after the last step"
    if best_step:
        when = f"after step {format_integer(best_step)}, whose weights the model has"
    validation_words = (
        f"{format_integer(facts.get('validation_tokens'))} validation tokens, "
        f"{format_bytes(facts.get('validation_bytes'))}, {when}"
    )
    rows = [
        ("Parameters", format_integer(parameter_count(facts)), "weights of the model"),
        (
            "Quantized parameters",
            format_integer(facts.get("quantized_parameters")),
            f"{facts.get('method')}, in {facts.get('quantized_layers')} linear layers",
        ),
        (
            "Weights on the disk",
            format_bytes(facts.get("bytes")),
            f"instead of {format_bytes(facts.get('bytes_before'))}",
        ),
        (
            "Relative error of the weights",
            format_percent(facts.get("weight_error"), 2),
            f"worst {format_percent(facts.get('worst_error'), 2)}, {facts.get('worst_layer')}",
        ),
        ("Without embeddings", format_integer(nested_value(facts, "parameters", "non_embedding")), "parameters"),
        ("Tokens seen", format_integer(facts.get("tokens")), "training tokens, repeated passes counted"),
        ("Tokens a parameter", tokens_a_parameter(facts), "20 in Hoffmann et al. 2022 (Chinchilla)"),
        ("Epochs", format_significant(facts.get("epochs"), 3), "passes over the training corpus"),
        ("Training pairs", format_integer(facts.get("pairs")), "questions with their answers, from training documents"),
        ("Optimizer steps", format_integer(facts.get("steps")), ""),
        ("Training loss, first", format_significant(facts.get("loss_first")), "nats per token, first step"),
        (
            "Training loss, last",
            format_significant(facts.get("loss_last", facts.get("loss"))),
            f"nats per token, {f'step {format_integer(best_step)}' if best_step else 'last step'}",
        ),
        ("Validation loss", format_significant(facts.get("validation_loss")), f"nats per token, {validation_words}"),
        ("Validation bits per byte", format_significant(facts.get("bits_per_byte")), validation_words),
        *(
            (
                f"Validation bits per byte: {name}",
                format_significant(nested_value(part, "bits_per_byte")),
                heldout_size_text(part),
            )
            for name, part in (facts.get("validation_by_source") or {}).items()
        ),
        ("Parameters before", format_integer(facts.get("parameters_before")), "of the model that was pruned"),
        (
            "Weights that are zero",
            format_integer(facts.get("zeros")),
            f"of {format_integer(facts.get('prunable'))} in linear layers",
        ),
        ("Layers", format_integer(facts.get("layers")), f"of {facts.get('layers_before')}"),
        ("Heads of a layer", format_integer(facts.get("heads")), f"of {facts.get('heads_before')}"),
        ("Neurons of a layer", format_integer(facts.get("neurons")), f"of {facts.get('neurons_before')}"),
        (
            "Held-out loss, pruned",
            format_significant(facts.get("pruned_loss_before")),
            "nats per token, before the training",
        ),
        (
            "Held-out loss, trained",
            format_significant(facts.get("pruned_loss_after")),
            "nats per token, after the training",
        ),
        ("Teacher", facts.get("teacher") or NOTHING, "whose probabilities of the next token it learned"),
        ("Held-out loss before", format_significant(facts.get("student_loss_before")), "nats per token"),
        ("Held-out loss after", format_significant(facts.get("student_loss_after")), "nats per token"),
        ("Held-out loss before", format_significant(facts.get("validation_loss_before")), "nats per token"),
        ("Held-out loss after", format_significant(facts.get("validation_loss_after")), "nats per token"),
        ("Held-out loss before", format_significant(facts.get("heldout_loss_before")), answers),
        ("Held-out loss after", format_significant(facts.get("heldout_loss_after")), answers),
    ]
    return [row for row in rows if row[1] != NOTHING]


def progress_facts(run: Run, model: Model, config: dict[str, Any] | None) -> list[Fact]:
    """How far a training that is not finished has come, by what it wrote last; nothing for a finished one."""
    if (folder := run.training.get((model.step, model.task))) is None:
        return []
    rows = training_metrics(run, model.step, model.task)
    last = {key: row[key] for row in rows for key in row if finite_number(row[key]) is not None}
    planned_steps = finite_number(nested_value(config, *model.step.split("."), "steps"))
    last_written = max((path.stat().st_mtime for path in measurement_files(folder)), default=None)
    written_text = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(last_written)) if last_written else NOTHING
    facts: list[Fact] = [
        (
            "Steps so far",
            format_integer(last.get("step")),
            f"of {format_integer(planned_steps)} optimizer steps" if planned_steps else "optimizer steps",
        ),
        ("Tokens so far", format_integer(last.get("tokens")), "training tokens, repeated passes counted"),
        ("Training loss, latest", format_significant(last.get("loss")), "nats per token"),
        ("Validation loss, latest", format_significant(last.get("validation_loss")), "nats per token"),
        ("Validation bits per byte, latest", format_significant(last.get("bits_per_byte")), "bits per byte"),
        ("Throughput, latest", format_integer(last.get("tokens_per_second")), "training tokens a second"),
        ("Time so far", format_duration(last.get("seconds")), "of all attempts"),
        ("Last line written", written_text, "its losses and metrics, beside the checkpoints"),
    ]  # fmt: skip
    return [row for row in facts if row[1] != NOTHING]
