"""Sections of a model card: results beside baselines, training, data, and what it was made by, as lines of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from crawl2llm.chain.model_registry import BASE, PUBLISHED_STEP, QUANTIZE_STEP, UNTRAINED
from crawl2llm.stages.compress.facts import Facts, TrainedModel

GROUPS = 12  # most reasons that a filter's row names


def task_label(task: str) -> str:
    """`word_order` → `word order`."""
    return "held-out questions" if task == "questions" else task.replace("_", " ")


def markdown_table(heads: list[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    """A table in Markdown; columns of numbers are aligned right."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    number = [all(row[at][:1] in "+-`" or row[at][:1].isdigit() for row in cells) for at in range(len(heads))]
    line = ["---:" if is_number and at else "---" for at, is_number in enumerate(number)]
    return [f"| {' | '.join(row)} |" for row in [heads, line, *cells]] + [""]


def evaluation_lines(facts: Facts) -> Iterator[str]:
    """Results, beside what they are worth: other models of the run, one with random weights, n-grams, compressors, chance."""
    model_name, heldout = facts.models[0].name, facts.evaluation.get("heldout_text")
    yield "## Evaluation\n"
    if heldout:
        yield f"On {heldout['documents']:,} documents of the run that were held out from training ({heldout['bytes']:,} bytes):\n"
        rows = [
            [model_label(model, model_name), f"{value:.4f}"]
            for model, value in sorted(facts.bits_per_byte(), key=lambda row: row[1])
        ]
        yield from markdown_table(["model", "bits per byte"], rows)
    if tasks := facts.task_results():
        yield "Tasks that the run makes from the same documents; *score* is (accuracy − chance) / (1 − chance), with its standard error.\n"
        yield from markdown_table(
            ["task", "model", "accuracy", "chance", "score", "items"],
            (
                [task_label(task), model_label(model, model_name), f"{n['accuracy']:.1%}", f"{n['chance']:.0%}",
                 f"{n['centered']:+.3f} ± {n['centered_stderr']:.3f}" if n.get("centered_stderr") is not None else f"{n['centered']:+.3f}",
                 f"{n.get('items', 0):,}"]
                for task, rows in tasks.items() for model, n in rows
            ),
        )  # fmt: skip
    if not heldout and not tasks:
        yield "Nothing was measured: the run held no text out.\n"


def model_label(name: str, exported_name: str) -> str:
    """What a table calls a model or a baseline."""
    words = {
        UNTRAINED: "random weights",
        BASE: "base",
        "xz": "xz (compressor)",
        "zstd": "zstd with a dictionary (compressor)",
    }
    return "**this model**" if name == exported_name else words.get(name, name)


def training_lines(facts: Facts) -> Iterator[str]:
    """How each step of its making trained it."""
    yield "## Training\n"
    for model in facts.models[::-1]:
        if model.step == PUBLISHED_STEP:
            continue
        yield f"**{model.name}**, by `{model.step}`" + (f", on {model.machine}" if model.machine else "") + ".\n"
        yield from markdown_table(["", ""], summary_rows(model))


SUMMARY_LABELS = {
    "tokens": "tokens", "epochs": "passes over the corpus", "steps": "steps", "global_batch_tokens": "tokens of a step",
    "learning_rate": "peak learning rate", "loss": "loss of the last step (nats a token)",
    "validation_loss": "validation loss (nats a token)",
    "bits_per_byte": "validation bits per byte", "pairs": "training pairs", "loss_first": "loss of the first step (nats a token)",
    "loss_last": "loss of the last step (nats a token)", "heldout_loss_before": "held-out loss before (nats an answer token)",
    "heldout_loss_after": "held-out loss after (nats an answer token)", "method": "method",
    "merged": "merged",
    "heldout_preference_loss_before": "held-out loss of preferences before",
    "heldout_preference_loss_after": "held-out loss of preferences after",
    "heldout_reward_before": "held-out reward before", "heldout_reward_after": "held-out reward after",
    "heldout_answer_loss_before": "held-out answers' loss before (nats a token)",
    "heldout_answer_loss_after": "held-out answers' loss after (nats a token)",
    "parameters_before": "parameters before", "pruned_loss_before": "loss when pruned (nats a token)",
    "teacher": "teacher", "student_loss_before": "held-out loss before (nats a token)",
    "student_loss_after": "held-out loss after (nats a token)",
    "pruned_loss_after": "loss after the training (nats a token)",
}  # fmt: skip


QUANTIZED = {  # method → the library that loads it, bits of a weight, how weights are kept
    "int8": (
        "bitsandbytes",
        8,
        "8 bits, with a scale for each row; activations are rounded to 8 bits too ([LLM.int8()](https://arxiv.org/abs/2208.07339))",
    ),
    "nf4": ("bitsandbytes", 4, "4 bits, with a scale for each 64 weights ([NF4](https://arxiv.org/abs/2305.14314))"),
    "int4": (
        "compressed-tensors",
        4,
        "4 bits, rounded to the nearest, with a scale for each {group_size} weights of a row",
    ),
    "gptq": (
        "compressed-tensors",
        4,
        "4 bits, with a scale for each {group_size} weights of a row ([GPTQ](https://arxiv.org/abs/2210.17323))",
    ),
    "awq": (
        "compressed-tensors",
        4,
        "4 bits, with a scale and a zero point for each {group_size} weights of a row ([AWQ](https://arxiv.org/abs/2306.00978))",
    ),
}


def loader_of(facts: Facts) -> str:
    """The library that transformers needs to load a quantized model; "" for another one."""
    model = facts.models[0]
    return QUANTIZED[model.summary["method"]][0] if model.step == QUANTIZE_STEP else ""


def quantization_lines(facts: Facts) -> Iterator[str]:
    """How a quantized model was quantized, and what that did."""
    if not loader_of(facts):
        return
    summary = facts.models[0].summary
    yield "## Quantization\n"
    yield (
        f"The weights of {summary['quantized_layers']:,} linear layers ({summary['quantized_parameters']:,} of "
        f"{summary['parameters']:,} parameters) are kept in {QUANTIZED[summary['method']][2].format_map(summary)}. "
        "Embeddings, norms and the output layer are not. "
        f"The weights take {summary['bytes'] / 1e6:,.2f} MB; before it they took {summary['bytes_before'] / 1e6:,.2f} MB.\n"
    )
    if (error := summary.get("weight_error")) is not None:
        yield f"Relative error of the quantized weights: {error:.2%}.\n"
    if "calibration_loss" in summary:
        yield (
            f"It was calibrated on {summary['calibration_tokens']:,} tokens of the training text. On these the loss is "
            f"{summary['calibration_loss']:.4f} nats a token; before it was {summary['calibration_loss_before']:.4f}, and with every "
            f"weight rounded to the nearest it would be {summary['calibration_loss_nearest']:.4f}.\n"
        )
    for note in summary.get("notes", []):
        yield f"{note}\n"


def summary_rows(model: TrainedModel) -> Iterator[list[str]]:
    """(what, value) of a step's summary, as far as it is known here."""
    for key, words in SUMMARY_LABELS.items():
        value = model.summary.get(key)
        if isinstance(value, str):
            yield [words, value]
        elif isinstance(value, int | float):
            yield [words, f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"]
    shape = model.summary.get("shape") or {}
    plain = {key: value for key, value in shape.items() if isinstance(value, int | str) and not isinstance(value, bool)}
    if plain:
        yield [
            "shape",
            ", ".join(
                f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in plain.items()
            ),
        ]


def data_lines(facts: Facts) -> Iterator[str]:
    """Sources and licences, and what each filter took away."""
    yield "## Data\n"
    yield from markdown_table(
        ["source", "licence of its texts", "documents in the corpus", "MB of text"],
        ([name, licence, f"{documents:,}", f"{size / 1e6:,.2f}"] for name, licence, documents, size in facts.sources()),
    )
    if pairs := pairs_by_source(facts):
        yield "Pairs of a question and its answer, by the file or pattern that they come from:\n"
        yield from markdown_table(
            ["pairs of", "trained on", "held out"],
            ([name, f"{part['train']:,}", f"{part['heldout']:,}"] for name, part in pairs.items()),
        )
    yield "Documents, from what was read to what was kept:\n"
    rows = []
    for stage, documents_in, documents_kept, dropped in facts.funnel():
        most = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
        reasons = ", ".join(f"{why} {number:,}" for why, number in most[:GROUPS])
        rows.append(
            [
                stage,
                f"{documents_in:,}",
                f"{documents_kept:,}",
                reasons + (f" and {len(most) - GROUPS} more reasons" if len(most) > GROUPS else ""),
            ]
        )
    yield from markdown_table(["stage", "in", "kept", "dropped"], rows)
    train = facts.run.summary("tokenize.encode", "train") or {}
    size = facts.run.summary("tokenize.train", "vocabulary")
    if train.get("tokens") and size:
        parts = f"{train['documents']:,} documents, {train['bytes']:,} bytes, {train['tokens']:,} tokens"
        yield f"For training: {parts} of a vocabulary of {size:,}.\n"


def pairs_by_source(facts: Facts) -> dict[str, dict[str, int]]:
    """The pairs that the run fine-tunes on, by where they come from; {} of a model that was not fine-tuned."""
    if not any(model.step == "finetune.train" for model in facts.models):
        return {}
    return facts.run.fact("finetune.pairs", "by_source") or {}


def provenance_lines(facts: Facts) -> Iterator[str]:
    """By what exactly it was made."""
    yield "## Provenance\n"
    yield "A digest of the settings, code and inputs of each step; two runs with the same digests have the same results.\n"
    yield from markdown_table(["step", "fingerprint"], ([step, f"`{mark}`"] for step, mark in facts.fingerprints()))
    sources = facts.models[0].manifest.sources
    if sources:
        yield f"Source files: `{', '.join(sources.values())}`.\n"
    versions = facts.models[0].record.get("versions") or {}
    if versions:
        yield "Made with " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + ".\n"
