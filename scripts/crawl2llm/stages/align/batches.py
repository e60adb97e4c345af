"""Which preferences or labelled answers a step trains on, and their tokens: as in fine-tuning (training/pair_batches.py).

A preference is two rows of a micro-batch: first the chosen answers of all its pairs, then the rejected ones. A labelled answer is one. KTO
also measures each question with an answer to another one; which one is the same in every epoch, so that the reference measures it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.stages.align.layouts import DPO, KTO, LABELS, LEARNS_FROM, PREFERENCE
from crawl2llm.stages.align.pairs import Row, layout_of, layouts_in, read_rows, result_row
from crawl2llm.training import pair_batches
from crawl2llm.training.chat_layout import layout_for
from crawl2llm.training.heldout import Piece
from crawl2llm.training.pair_batches import Cuts, cut_counts, deal_micro_batches, micro_batch, tokenized_pairs
from crawl2llm.training.question_cuts import FittedRows, cut_prompt, fit_pairs, further_special_tokens
from crawl2llm.training.shared_settings import TuningSettings
from crawl2llm.training.template import Template

# Texts of a row that are laid out behind its question.
CHOSEN, REJECTED, ANSWER, OTHER = "chosen", "rejected", "answer", "other"
TEXTS_BY_METHOD = {DPO: (CHOSEN, REJECTED), KTO: (ANSWER, OTHER)}


def labelled_answers(rows: Iterable[Row]) -> list[Row]:
    """Labelled answers: those that are, and a good and a bad one of each preference; each with an answer to another question.

    `other` is that of the next row in the order of ids with another question; without one, its own answer.
    """
    labelled = []
    for row in rows:
        if layout_of(row) == LABELS:
            labelled.append(row)
        elif layout_of(row) == PREFERENCE:
            for name in (CHOSEN, REJECTED):
                answer_row = {"question": row["question"], "answer": row[name], "label": name == CHOSEN}
                labelled.append(result_row(row["of"], answer_row))
    labelled.sort(key=lambda row: str(row["id"]))
    count = len(labelled)
    for at, row in enumerate(labelled):
        following = (labelled[(at + ahead) % count] for ahead in range(1, count))
        row[OTHER] = next(
            (other_row["answer"] for other_row in following if other_row["question"] != row["question"]),
            row["answer"],
        )
    return labelled


def rows_for(method: str, manifest: Path, name: str, step_name: str = "") -> tuple[list[Row], Template]:
    """The rows of align.pairs that a method takes, and their template. Raises InputError if there is none to train on.

    step_name: a step that takes the rows of that method, if it is not align.train.
    """
    rows, template = read_rows(manifest, name, LEARNS_FROM[method])
    method_rows = labelled_answers(rows) if method == KTO else rows
    if not method_rows and name == "train":
        layout_names = ", ".join(layouts_in(manifest, name)) or "no row"
        wants = f"rows of layout {PREFERENCE} or {LABELS}" if method == KTO else f"rows of layout {PREFERENCE}"
        raise InputError(
            f"{step_name or f'align.train.method is {method!r}, which'} takes {wants}; align.pairs has {layout_names}: set "
            "align.pairs.files"
        )
    if method == KTO and name == "train" and len({row["label"] for row in method_rows}) == 1:
        label = str(method_rows[0]["label"]).lower()
        raise InputError(
            f"align.train.method is 'kto', which takes good and bad answers; all {len(method_rows):,} rows have label {label}"
        )
    return method_rows, template


def answer_pairs(rows: Iterable[Row], *names: str) -> list[Row]:
    """Question and answer pairs of rows, for each of the texts `names` one after another."""
    held = list(rows)
    return [{"question": row["question"], "answer": row[name]} for name in names for row in held]


def unique_questions(rows: Iterable[Row]) -> list[Row]:
    """The first row of each question; its `answer` is the first good one to it, if there is any."""
    by_question: dict[str, Row] = {}
    for row in rows:
        answer = row.get("answer", row.get("chosen")) if row.get("label", True) else None
        rest = {name: value for name, value in row.items() if name != "answer"}
        first = by_question.setdefault(row["question"], rest)
        if answer:
            first.setdefault("answer", answer)
    return list(by_question.values())


class PromptBatches(pair_batches.Batches):
    """Batches whose questions can be asked, too."""

    def prompt_ids(self, row: Row) -> list[int]:
        """The tokens of a question."""
        return list(self.tokenizer(self.template.prompt(row["question"]))["input_ids"])

    def fit_prompts(self, rows: Iterable[Row], max_new_tokens: int) -> FittedRows:
        """The rows, whose questions are cut so that `max_new_tokens` of an answer fit within `max_length`."""
        limit, fitted = self.settings.max_length - max_new_tokens, FittedRows()
        special = further_special_tokens(self.tokenizer)
        for row in rows:
            question = cut_prompt(row["question"], self.template, self.tokenizer, limit)
            if question is None or not self.prompt_ids(row) or any(token in row["question"] for token in special):
                fitted.left_out += 1
                continue
            fitted.rows.append({**row, "question": question})
            fitted.cut.append(question != row["question"])
        return fitted


class Preferences(PromptBatches):
    """The batches of `method` dpo or kto on `processes` processes; `size` and `rounds` count pairs or labelled answers."""

    step_name = ""  # the step, where it is not align.train

    def __init__(self, manifest: Path, tokenizer: Any, settings: TuningSettings, processes: int, method: str) -> None:
        self.method = method
        self.rows_each = 2 if self.method == DPO else 1
        self.trained_texts = TEXTS_BY_METHOD[self.method][: self.rows_each]
        self.tokenizer, self.settings = tokenizer, settings
        super().__init__(manifest, tokenizer, settings, processes)

    def read_training_rows(self, manifest: Path) -> tuple[list[Row], Template]:
        """The rows to train on, and how they are laid out."""
        all_rows, origin = rows_for(self.method, manifest, "train", self.step_name)
        self.template = layout_for(origin, self.tokenizer)
        self.fitted = self.fit_rows(all_rows)
        return self.fitted.rows or all_rows, self.template

    def fit_rows(self, rows: list[Row]) -> FittedRows:
        """The rows whose answers fit in `max_length`, some with a cut question: the same of both answers of a pair."""
        also = TEXTS_BY_METHOD[self.method][self.rows_each :]
        return fit_pairs(rows, self.template, self.tokenizer, self.settings.max_length, self.trained_texts, also)

    def answer_pieces(self, rows: Iterable[Row], *names: str) -> list[Piece]:
        """The tokens of questions with the answers `names`, in the order of `answer_pairs`."""
        return list(
            tokenized_pairs(answer_pairs(rows, *names), self.template, self.tokenizer, self.settings.max_length)
        )

    def count_cuts(self) -> Cuts:
        """What `max_length` does to all rows."""
        return cut_counts(self.fitted)

    def row_numbers(self, step: int, rank: int) -> list[list[int]]:
        """The rows of each of a process's micro-batches of a step; every process has as many micro-batches."""
        return [turn[rank] for turn in deal_micro_batches(self.step_indices(step).tolist(), self.processes, self.size)]

    def make_micro_batch(self, numbers: Iterable[int], *names: str) -> pair_batches.MicroBatch:
        """A micro-batch of rows with the answers `names`; by default those that are trained on."""
        rows = [self.rows[number] for number in numbers]
        return micro_batch(self.answer_pieces(rows, *(names or self.trained_texts)), self.tokenizer.eos_token_id)

    def micro_batches(self, step: int, rank: int) -> list[pair_batches.MicroBatch]:
        """A process's micro-batches of a step."""
        return [self.make_micro_batch(numbers) for numbers in self.row_numbers(step, rank)]
