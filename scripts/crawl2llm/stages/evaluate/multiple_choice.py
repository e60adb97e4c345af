"""The multiple-choice tasks that a model is asked: their rows, and what lm-evaluation-harness found on them as numbers and lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.public_tasks.measures import QUESTIONS, measure_task, split_tokens
from crawl2llm.training.question_cuts import cut_if_possible, further_special_tokens
from crawl2llm.training.template import Template

Row = dict[str, Any]  # id, document, choices, gold, and `context`, which stands before the choices
Pair = tuple[list[int], list[int]]  # the tokens given, the tokens scored
EncodeTexts = Callable[[Sequence[str]], Sequence[Sequence[int]]]  # the ids of each text
TOO_LONG, NO_TOKEN, SPECIAL_TOKEN = "too_long", "no_token", "special_token"


@dataclass
class Task:
    """Rows of one task, and of each row the tokens of each choice. delimiter: between context and choice."""

    name: str
    rows: list[Row] = field(default_factory=list)
    delimiter: str = ""
    pairs: list[list[Pair]] = field(default_factory=list)
    # By reason: a choice takes the whole context of the model or more, or has no token; a question or a choice spells a special token.
    left_out: Counter[str] = field(default_factory=lambda: Counter({TOO_LONG: 0}))
    cut: int = 0  # rows whose question is cut to fit the model's context

    def why_without_rows(self, context: int) -> str | None:
        """Why no row of a task is put to the model, in words; None if one is, or if it never had any. context: in tokens."""
        if self.rows or not self.left_out.total():
            return None
        faults = {
            TOO_LONG: f"has a choice longer than the context of {context} tokens",
            NO_TOKEN: "has a choice without a token",
            SPECIAL_TOKEN: "spells a special token of the model's",
        }
        words = " or ".join(fault for reason, fault in faults.items() if self.left_out[reason])
        return f"every one of its {self.left_out.total()} items {words}"


def text_encoder(tokenizer: Any, special: bool) -> EncodeTexts:
    """Encodes texts by a tokenizer of transformers. special: with the special tokens that it puts around a text, if it does, and with those
    that the text spells, as a chat template does; else what it spells is text.
    """
    return lambda texts: tokenizer(list(texts), add_special_tokens=special, split_special_tokens=not special)[
        "input_ids"
    ]


def spells_special_token(tokenizer: Any, *texts: str) -> bool:
    """Whether a text that is to stand in a chat template, whose special tokens are recognised, spells one of the model's own: a question
    would end at an `<end>` that it tells of. finetune.pairs leaves out those of every vocabulary.
    """
    return any(token in text for token in further_special_tokens(tokenizer) for text in texts)


def fill_tasks(tasks: Iterable[tuple[Task, Row]], encode: EncodeTexts, context: int, end: int) -> None:
    """Give each task its rows, with `context` and `choices`, and their tokens; count those that do not fit.

    context: of the model in tokens, of which a choice takes less. A text before the choices that is too long is no harm: lm-eval cuts
    it from the left. end: the token that is given if there is no other.
    """
    all_rows = list(tasks)
    texts = list(
        dict.fromkeys(
            row["context"] + choice
            for task, row in all_rows
            for choice in ("", *(task.delimiter + choice for choice in row["choices"]))
        )
    )
    ids = dict(zip(texts, encode(texts) if texts else (), strict=True))
    for task, row in all_rows:
        before, scored = split_tokens(
            ids.__getitem__, row["context"], [task.delimiter + choice for choice in row["choices"]]
        )
        sizes = [len(tokens) for tokens in scored]
        if max(sizes) >= context or not min(sizes):
            task.left_out[TOO_LONG if max(sizes) >= context else NO_TOKEN] += 1
            continue
        task.rows.append(row)
        task.pairs.append([(before or [end], tokens) for tokens in scored])


def read_items(manifest: Path) -> list[Row]:
    """The rows of `items.jsonl` of a manifest of evaluate.items.

    Raises InputError for the manifest of another step, ManifestError for a damaged one.
    """
    return Manifest.read_of_step("evaluate.items", manifest, "--tasks").rows("items.jsonl")


def item_tasks(rows: list[Row], tokenizer: Any, context: int) -> list[Task]:
    """The tasks of rows of `items.jsonl`, in their order there; see `fill_tasks`. context: of the model, in tokens."""
    tasks = {row["task"]: Task(row["task"]) for row in rows}
    fill_tasks(
        [(tasks[row["task"]], row) for row in rows], text_encoder(tokenizer, False), context, tokenizer.eos_token_id
    )
    return list(tasks.values())


def question_tasks(rows: list[Row], template: Template, tokenizer: Any, context: int) -> list[Task]:
    """The held-out questions of finetune.pairs, put as in fine-tuning, and a task of each file with labels; see `fill_tasks`.

    A question is cut as there if one of its choices would not fit behind it.
    Those are left out, uncounted, that have too few other answers for a choice, and counted, that spell a special token of the model's own.
    """
    tasks = {QUESTIONS: Task(QUESTIONS, delimiter=template.delimiter)}
    task_rows: list[tuple[Task, Row]] = []
    for row in rows:
        if "choices" in row:
            name = row["of"] if "labels" in row else QUESTIONS
            task = tasks.setdefault(name, Task(name, delimiter=template.delimiter))
            if spells_special_token(tokenizer, row["question"], *row["choices"]):
                task.left_out[SPECIAL_TOKEN] += 1
                continue
            choices = [template.completion(choice) for choice in row["choices"]]
            question = cut_if_possible(row["question"], template, tokenizer, context, choices)
            task.cut += question != row["question"]
            task_rows.append((task, {**row, "context": template.prompt(question)}))
    fill_tasks(task_rows, text_encoder(tokenizer, True), context, tokenizer.eos_token_id)
    return list(tasks.values())


def label_measures(rows: Sequence[Row], lines: Sequence[Row]) -> Row:
    """Of rows with labels: how many of each (first) were given each label, macro F1, and the share of the most frequent label.

    Macro F1 is the mean over the labels of 2 × right / (given + true); 0 of one that is neither given nor true.
    """
    labels = list(rows[0]["labels"])
    table = {label: dict.fromkeys(labels, 0) for label in labels}
    for row, line in zip(rows, lines, strict=True):
        table[labels[row["gold"]]][labels[line["chosen"]]] += 1
    true = {label: sum(table[label].values()) for label in labels}
    predicted_counts = {label: sum(part[label] for part in table.values()) for label in labels}
    scores = [2 * table[label][label] / max(1, true[label] + predicted_counts[label]) for label in labels]
    majority = max(true.values()) / len(rows)
    return {"confusion": table, "macro_f1": round(sum(scores) / len(labels), 6), "majority": round(majority, 6)}


def choice_likelihoods(samples: list[dict[str, Any]]) -> list[list[float]]:
    """The nats of each choice of each row, in the order of the rows, from lm-eval's samples."""
    ordered = sorted(samples, key=lambda sample: sample["doc_id"])
    return [[float(answer[0]) for answer in sample["filtered_resps"]] for sample in ordered]


def task_results(
    tasks: Sequence[Task], samples: dict[str, list[dict[str, Any]]], seed: int
) -> tuple[dict[str, Row], list[Row]]:
    """(numbers by task, a line for each item) of the tasks that have rows. samples: of lm-eval, by task.

    Raises InputError if a log-likelihood is no finite number: of such choices the first would count as chosen.
    """
    numbers, lines = dict[str, Row](), list[Row]()
    for task in tasks:
        if task.rows:
            nats = choice_likelihoods(samples[task.name])
            if not all(math.isfinite(value) for of_row in nats for value in of_row):
                raise InputError(
                    f"{task.name}: the model's log-likelihoods are not all finite numbers: its weights are damaged, or its training "
                    "diverged"
                )
            measures, task_lines = measure_task(task.name, task.rows, nats, seed)
            label_numbers = label_measures(task.rows, task_lines) if "labels" in task.rows[0] else {}
            left_out = {f"left_out_{reason}": number for reason, number in task.left_out.items()}
            cut = {"questions_cut": task.cut} if task.cut else {}
            numbers[task.name] = {**measures, **left_out, **cut, **label_numbers}
            lines += task_lines
    return numbers, lines
