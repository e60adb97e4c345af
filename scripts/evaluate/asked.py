"""The multiple-choice tasks that a model is asked: their rows, and what lm-evaluation-harness found on them as numbers and lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.evaluate.measures import QUESTIONS, cut, measured
from scripts.finetune.template import Template
from scripts.workflow.errors import InputError
from scripts.workflow.manifest import Manifest

Row = dict[str, Any]  # id, document, choices, gold, and `context`, which stands before the choices
Pairs = dict[tuple[str, str], tuple[list[int], list[int]]]  # (context, choice) → the tokens given, the tokens scored


@dataclass
class Task:
    """Rows of one task. delimiter: between context and choice. pairs: their tokens, where lm-eval is not to cut them itself."""

    name: str
    rows: list[Row]
    delimiter: str = ""
    pairs: Pairs = field(default_factory=dict)
    left_out: int = 0  # whose choices are longer than the model's context


def encoded(tokenizer: Any, texts: Sequence[str]) -> dict[str, list[int]]:
    """The ids of each text, without special tokens around them."""
    different = list(dict.fromkeys(texts))
    if not different:
        return {}
    return dict(zip(different, tokenizer(different, add_special_tokens=False)["input_ids"], strict=True))


def read_items(manifest: Path) -> list[Row]:
    """The rows of `items.jsonl` of a manifest of evaluate.items.

    Raises InputError for the manifest of another step, ManifestError for a damaged one.
    """
    return Manifest.of("evaluate.items", manifest, "--items").rows("items.jsonl")


def of_items(rows: list[Row], tokenizer: Any, context: int) -> list[Task]:
    """The tasks of rows of `items.jsonl`, in their order there. context: of the model in tokens, of which a choice takes less.

    A context that is too long is no harm: lm-eval cuts it from the left.
    """
    found: dict[str, Task] = {}
    ids = encoded(
        tokenizer, [text for row in rows for text in (row["context"], *(row["context"] + c for c in row["choices"]))]
    )
    for row in rows:
        task = found.setdefault(row["task"], Task(row["task"], []))
        before, scored = cut(ids.__getitem__, row["context"], row["choices"])
        if max(map(len, scored)) >= context:
            task.left_out += 1
            continue
        task.rows.append(row)
        for choice, tokens in zip(row["choices"], scored, strict=True):
            task.pairs[row["context"], choice] = (before or [tokenizer.eos_token_id], tokens)
    return list(found.values())


def of_questions(rows: list[Row], template: Template, tokenizer: Any, context: int) -> list[Task]:
    """The held-out questions of finetune.pairs, asked as in fine-tuning, and a task of each file with labels.

    Those are left out of which an answer takes `context` tokens, and those that have too few other answers for a choice.
    """
    rows = [row for row in rows if "choices" in row]
    ids = encoded(tokenizer, [f" {text}" for row in rows for text in row["choices"]])
    found: dict[str, Task] = {QUESTIONS: Task(QUESTIONS, [], template.delimiter)}
    for row in rows:
        name = row["of"] if "labels" in row else QUESTIONS
        task = found.setdefault(name, Task(name, [], template.delimiter))
        if max(len(ids[f" {text}"]) for text in row["choices"]) < context:
            task.rows.append({**row, "context": template.prompt(row["question"])})
        else:
            task.left_out += 1
    return list(found.values())


def classified(rows: Sequence[Row], lines: Sequence[Row]) -> Row:
    """Of rows with labels: how many of each (first) were given each label, macro F1, and the share of the most frequent label.

    Macro F1 is the mean over the labels of 2 × right / (given + true); 0 of one that is neither given nor true.
    """
    labels = list(rows[0]["labels"])
    table = {label: dict.fromkeys(labels, 0) for label in labels}
    for row, line in zip(rows, lines, strict=True):
        table[labels[row["gold"]]][labels[line["chosen"]]] += 1
    true = {label: sum(table[label].values()) for label in labels}
    given = {label: sum(part[label] for part in table.values()) for label in labels}
    scores = [2 * table[label][label] / max(1, true[label] + given[label]) for label in labels]
    most = max(true.values()) / len(rows)
    return {"confusion": table, "macro_f1": round(sum(scores) / len(labels), 6), "majority": round(most, 6)}


def likelihoods(samples: list[dict[str, Any]]) -> list[list[float]]:
    """The nats of each choice of each row, in the order of the rows, from lm-eval's samples."""
    ordered = sorted(samples, key=lambda sample: sample["doc_id"])
    return [[float(answer[0]) for answer in sample["filtered_resps"]] for sample in ordered]


def results(
    tasks: Sequence[Task], samples: dict[str, list[dict[str, Any]]], seed: int
) -> tuple[dict[str, Row], list[Row]]:
    """(numbers by task, a line for each item) of the tasks that have rows. samples: of lm-eval, by task.

    Raises InputError where a log-likelihood is no finite number: of such choices the first would count as chosen.
    """
    numbers, lines = dict[str, Row](), list[Row]()
    for task in tasks:
        if task.rows:
            nats = likelihoods(samples[task.name])
            if not all(math.isfinite(value) for of_row in nats for value in of_row):
                raise InputError(
                    f"{task.name}: the model's log-likelihoods are not all finite numbers: its weights are damaged, or its training "
                    "diverged"
                )
            found, more = measured(task.name, task.rows, nats, seed)
            more_of = classified(task.rows, more) if "labels" in task.rows[0] else {}
            numbers[task.name] = {**found, "left_out_too_long": task.left_out, **more_of}
            lines += more
    return numbers, lines
