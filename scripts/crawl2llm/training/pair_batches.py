"""Which pairs a step trains on, and their tokens: micro-batches of inputs and targets, of which the answers' tokens alone count.

With `packing` several pairs stand in a row, and none sees another.

The pairs of all epochs are one sequence: each epoch a permutation by (seed, epoch), one after another. A step takes the next `batch_size`
of it, the last one what is left. So its pairs are a function of the step alone, the same for any number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.training.batch import IGNORE, MicroBatch
from crawl2llm.training.chat_layout import layout_for
from crawl2llm.training.data import Tokens, windows_from
from crawl2llm.training.heldout import Piece, pad_windows
from crawl2llm.training.question_cuts import FittedRows, fit_pairs
from crawl2llm.training.shared_settings import PairTrainingSettings, TuningSettings
from crawl2llm.training.template import Template, read_pairs

Row = list[Piece]  # the pairs that stand in one row of a micro-batch, each for itself


def pairs_of(settings: TuningSettings) -> list[str]:
    """The patterns and files whose pairs alone are trained on; none: all."""
    return settings.pairs_of if isinstance(settings, PairTrainingSettings) else []


def is_packed(settings: TuningSettings) -> bool:
    """Whether a row holds several pairs."""
    return isinstance(settings, PairTrainingSettings) and settings.packing


def read_selected_pairs(manifest: Path, name: str, wanted: Sequence[str]) -> tuple[list[dict[str, Any]], Template]:
    """As `read_pairs`, of the patterns and files `wanted` alone; all if there are none.

    Raises InputError for one that gave no pair, and where no training pair is of them.
    """
    rows, template = read_pairs(manifest, name)
    selected = [row for row in rows if not wanted or row["of"] in wanted]
    by_source = Manifest.read(manifest).summary["by_source"] if wanted else {}
    lost = [each for each in wanted if each not in by_source] or wanted[: not selected and name == "train"]
    if lost:
        raise InputError(
            f"finetune.train.pairs_of: finetune.pairs has no pair of {lost[0]!r} to train on; it has those of "
            f"{', '.join(repr(each) for each, part in by_source.items() if part['train'])}"
        )
    return selected, template


def tokenize_pair(tokenizer: Any, prompt: str, completion: str, max_length: int) -> tuple[list[int], int]:
    """(token ids of prompt, completion and end token cut to `max_length`; how many of them are the prompt's).

    As TRL does it: the text is tokenized in one piece, and the prompt is what its own tokens share with that.
    """
    alone = tokenizer(prompt)["input_ids"]
    whole = tokenizer(prompt + completion + tokenizer.eos_token)["input_ids"]
    shared = 0
    for left, right in zip(alone, whole, strict=False):
        if left != right:
            break
        shared += 1
    return whole[:max_length], min(shared, max_length)


def tokenized_pairs(
    rows: Iterable[dict[str, Any]], template: Template, tokenizer: Any, max_length: int
) -> Iterator[Piece]:
    """Each pair's ids, and how many of the last ones are its answer's; without a token before it, none is predicted."""
    for row in rows:
        prompt, answer = template.prompt(row["question"]), template.completion(row["answer"])
        ids, shared = tokenize_pair(tokenizer, prompt, answer, max_length)
        yield np.array(ids, np.int64), min(len(ids) - shared, len(ids) - 1), 0


@dataclass(frozen=True)
class Cuts:
    """What `max_length` does to some pairs."""

    pairs: int  # all of them
    cut: int  # those whose questions are cut
    left_out: (
        int  # those that do not fit even with one token of the question, or spell a special token of the model's own
    )


def cut_counts(fitted: FittedRows, numbers: Iterable[int] | None = None) -> Cuts:
    """Count the pairs that `max_length` cuts, of the rows `numbers` of `fitted` (all by default), and those that it leaves out."""
    flags = fitted.cut if numbers is None else [fitted.cut[number] for number in numbers]
    return Cuts(len(flags) + fitted.left_out, sum(flags), fitted.left_out)


def cuts_summary(train: Cuts, heldout: Cuts) -> dict[str, Any]:
    """What the manifest's summary says of the pairs that are cut or left out: {} without any."""
    if not _cut_or_left_out(train, heldout):
        return {}
    return {"cut": {"train": asdict(train), "heldout": asdict(heldout)}}


def _cut_or_left_out(train: Cuts, heldout: Cuts) -> int:
    return sum(counts.cut + counts.left_out for counts in (train, heldout))


def report_notes(
    train: Cuts, heldout: Cuts, max_length: int, part: str, where: str = "finetune.train", unit: str = "pairs"
) -> list[str]:
    """A note for the report if pairs are cut or left out; else none. part: of a question that goes. unit: is counted."""
    if not _cut_or_left_out(train, heldout):
        return []
    text = (
        f"In {train.cut:,} of {train.pairs:,} training {unit}, and in {heldout.cut:,} of {heldout.pairs:,} held-out {unit}, the question "
        f"is cut ({part}) to fit in {where}.max_length, {max_length} tokens"
    )
    if train.left_out + heldout.left_out:
        text += (
            f"; {train.left_out:,} training and {heldout.left_out:,} held-out {unit} are left out, which do not fit even with a "
            "token of the question, or spell a special token of the model's own"
        )
    return [f"{text}."]


def micro_batch(batch_pieces: Sequence[Piece], end: int) -> MicroBatch:
    """A micro-batch of pairs, padded to its longest; of none, a row in which no target counts. end: the end token's id."""
    inputs, targets = pad_windows(batch_pieces or [(np.full(2, end, np.int64), 0, 0)], end)
    return torch.from_numpy(inputs), torch.from_numpy(targets)


def pack_pairs(unpacked_pieces: Sequence[Piece], length: int) -> list[Row]:
    """Pairs in as few rows of `length` tokens as first-fit decreasing finds: the longest first, each in the first row that has room."""
    rows: list[Row] = []
    room: list[int] = []
    for piece in sorted(unpacked_pieces, key=lambda piece: -len(piece[0])):  # of equal ones in their order
        at = next((number for number, left in enumerate(room) if left >= len(piece[0])), len(rows))
        if at == len(rows):
            rows.append([])
            room.append(length)
        rows[at].append(piece)
        room[at] -= len(piece[0])
    return rows


def packed_micro_batch(rows: Sequence[Row], end: int) -> MicroBatch:
    """A micro-batch of packed rows: inputs, targets, and the position of each token in its own pair, by which attention stays in it.

    A pair's last token is no input, as in `micro_batch`; of no row, one in which no target counts.
    """
    width = max((sum(len(ids) - 1 for ids, *_ in row) for row in rows), default=1)
    shape = max(1, len(rows)), width
    inputs, targets = np.full(shape, end, np.int64), np.full(shape, IGNORE, np.int64)
    places = np.tile(np.arange(width, dtype=np.int64), (shape[0], 1))
    for number, row in enumerate(rows):
        at = 0
        for ids, scored, _ in row:
            to = at + len(ids) - 1
            inputs[number, at:to] = ids[:-1]
            targets[number, to - scored : to] = ids[len(ids) - scored :]
            places[number, at:] = np.arange(width - at)  # what is behind is the next pair's, or padding after the last
            at = to
        places[number, at:] = np.arange(width - at)
    return torch.from_numpy(inputs), torch.from_numpy(targets), torch.from_numpy(places)


def deal_micro_batches(items: Sequence[Any] | Tokens, processes: int, size: int) -> list[list[Any]]:
    """Micro-batches of at most `size`, dealt out in turn: one of each process, in each round. The last ones may be empty."""
    rounds = math.ceil(len(items) / (processes * size))
    starts = (turn * processes * size for turn in range(rounds))
    return [[items[start + rank * size :][:size] for rank in range(processes)] for start in starts]


class Batches:
    """The batches of a fine-tuning on `processes` processes.

    Every step has a token to learn from: `rows` are the pairs whose answers fit in `max_length`, some with a cut question.
    `size` is that of a micro-batch: at most that of the settings, and all of a step alike; `rounds` are the micro-batches of a process.
    """

    rows_each = 1  # rows of a micro-batch for each of its pairs

    def __init__(self, manifest: Path, tokenizer: Any, settings: TuningSettings, processes: int) -> None:
        self.tokenizer, self.settings, self.processes = tokenizer, settings, processes
        self.rows, self.template = self.read_training_rows(manifest)
        self.pairs = max(1, round(settings.epochs * len(self.rows)))  # of all epochs
        self.steps = math.ceil(self.pairs / settings.batch_size)
        self.rounds = math.ceil(settings.batch_size / (processes * settings.micro_batch))
        self.size = math.ceil(settings.batch_size / (processes * self.rounds))
        self.sequences = settings.batch_size * self.rows_each  # of a step

    def read_training_rows(self, manifest: Path) -> tuple[list[dict[str, Any]], Template]:
        """The rows to train on, and how they are laid out; all of them if there is none to learn from, which is refused later."""
        all_rows, origin = read_selected_pairs(manifest, "train", pairs_of(self.settings))
        template = layout_for(origin, self.tokenizer)
        self.fitted = fit_pairs(all_rows, template, self.tokenizer, self.settings.max_length)
        return self.fitted.rows or all_rows, template

    def step_indices(self, step: int) -> Tokens:
        """The numbers of the pairs of a step, of all processes."""
        first, size = (step - 1) * self.settings.batch_size, self.settings.batch_size
        return windows_from(first, min(size, self.pairs - first), len(self.rows), self.settings.seed)

    def count_cuts(self) -> Cuts:
        """What `max_length` does to the pairs that are trained on, fewer than all of them in less than an epoch, and that are left out."""
        if not self.fitted.rows:
            return cut_counts(self.fitted)
        return cut_counts(
            self.fitted, windows_from(0, min(self.pairs, len(self.rows)), len(self.rows), self.settings.seed)
        )

    def ids(self, step: int) -> list[str]:
        """The ids of the pairs of a step, of all processes, sorted."""
        return sorted({self.rows[number]["id"] for number in self.step_indices(step)})

    def micro_batches(self, step: int, rank: int) -> list[MicroBatch]:
        """A process's micro-batches of a step; every process has as many."""
        length, end = self.settings.max_length, self.tokenizer.eos_token_id
        if is_packed(self.settings):  # every process packs all, so that all have as many micro-batches
            step_pieces = tokenized_pairs(
                (self.rows[number] for number in self.step_indices(step)), self.template, self.tokenizer, length
            )
            turns = deal_micro_batches(pack_pairs(list(step_pieces), length), self.processes, self.size)
            return [packed_micro_batch(turn[rank], end) for turn in turns]
        mine = [turn[rank] for turn in deal_micro_batches(self.step_indices(step), self.processes, self.size)]
        rows = [[self.rows[number] for number in numbers] for numbers in mine]
        return [micro_batch(list(tokenized_pairs(part, self.template, self.tokenizer, length)), end) for part in rows]
