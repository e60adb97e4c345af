"""What a student learns from: a teacher that runs beside it, or what compress.teach wrote of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.stages.compress.distilling_engine import Lesson
from crawl2llm.stages.compress.divergence import Divergence, fewer
from crawl2llm.stages.compress.settings import DistilSettings
from crawl2llm.stages.compress.teacher_output import IDS, LOGPROBS, headless, hidden_states
from crawl2llm.training import data
from crawl2llm.training.model_loading import context_of, load_model


class Teacher(Protocol):
    """What says of each token of a micro-batch how likely the next ones are."""

    def lesson(self, inputs: torch.Tensor, windows: Sequence[int]) -> Lesson:
        """Of token ids [n, length] on the device, which are these windows of the training text; none where no token counts."""

    def loss_of_piece(self, logits: torch.Tensor, targets: torch.Tensor, *lesson: torch.Tensor) -> torch.Tensor:
        """The sum of the losses of fp32 logits [k, vocabulary] and targets [k] by the parts [k, …] of a lesson."""


class NoTeacher:
    """The text alone."""

    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence

    def lesson(self, inputs: torch.Tensor, windows: Sequence[int]) -> Lesson:
        """Nothing."""
        return ()

    def loss_of_piece(self, logits: torch.Tensor, targets: torch.Tensor, *lesson: torch.Tensor) -> torch.Tensor:
        """As `Teacher.loss_of_piece`."""
        return self.divergence.of_text(logits, targets)


class WholeTeacher:
    """A model on the student's device, which says hidden states; its head makes logits of a piece of them."""

    def __init__(self, model: Any, divergence: Divergence, where: str) -> None:
        self.model, self.divergence, self.where = model.requires_grad_(False).eval(), divergence, where
        self.logits = headless(self.model)

    @torch.no_grad()
    def lesson(self, inputs: torch.Tensor, windows: Sequence[int]) -> Lesson:
        """Hidden states [n, length, width]."""
        return (hidden_states(self.model, inputs, self.where),)

    def loss_of_piece(self, logits: torch.Tensor, targets: torch.Tensor, *lesson: torch.Tensor) -> torch.Tensor:
        """As `Teacher.loss_of_piece`."""
        return self.divergence.of_logits(logits, targets, self.logits(lesson[0]).float())


class WrittenTeacher:
    """The likeliest tokens and their log-probabilities, as compress.teach wrote them.

    Raises InputError if they are not of these windows, this temperature or so many tokens.
    """

    def __init__(
        self, taught: Manifest, settings: DistilSettings, divergence: Divergence, windows: int, where: str
    ) -> None:
        summary = taught.summary
        for key, ours, theirs in (
            ("temperature", settings.temperature, summary["temperature"]),
            ("top_k", settings.top_k, min(settings.top_k, summary["top_k"])),
            ("the windows of the training text", windows, summary["stream_windows"]),
        ):
            if ours != theirs:
                raise InputError(f"{where}: {key} is {ours}; compress.teach wrote {theirs}")
        self.divergence, self.number = divergence, settings.top_k
        self.parts = [
            tuple(np.load(taught.file(name.replace(IDS, end)), mmap_mode="r") for end in (IDS, LOGPROBS))
            for name in sorted(taught.files)
            if name.endswith(IDS)
        ]
        self.part_windows, self.where = summary["part_windows"], where
        self.rows = np.full(windows, -1, np.int64)
        self.rows[data.windows_from(0, summary["windows"], windows, summary["seed"])] = np.arange(summary["windows"])

    def lesson(self, inputs: torch.Tensor, windows: Sequence[int]) -> Lesson:
        """(ids, int64 [n, length, k]; log-probabilities, fp32 [n, length, k + 1]). Raises InputError for a window that was not written."""
        rows = self.rows[np.asarray(windows, np.int64)]
        if (rows < 0).any():
            raise InputError(
                f"{self.where}: the student reads a window that compress.teach did not write; raise compress.teach.tokens, or set "
                "it to 0, and take the same seed"
            )
        if not len(rows):
            shape = (*inputs.shape, self.number)
            return (inputs.new_zeros(shape), torch.zeros(*inputs.shape, self.number + 1, device=inputs.device))
        pairs = [[array[row % self.part_windows] for array in self.parts[row // self.part_windows]] for row in rows]
        ids, logprobs = (torch.from_numpy(np.stack(each)) for each in zip(*pairs, strict=True))
        few = fewer(logprobs.float().flatten(0, 1), self.number).unflatten(0, logprobs.shape[:2])
        return ids[..., : self.number].to(inputs.device, torch.int64), few.to(inputs.device)

    def loss_of_piece(self, logits: torch.Tensor, targets: torch.Tensor, *lesson: torch.Tensor) -> torch.Tensor:
        """As `Teacher.loss_of_piece`."""
        return self.divergence.of_likeliest(logits, targets, *lesson)


def check_same_tokens(teacher: Path, student: Path, where: str) -> None:
    """InputError if two models' folders have other tokenizers."""
    name = "tokenizer.json"
    if (teacher / name).read_bytes() != (student / name).read_bytes():
        raise InputError(f"{where}.teacher: the tokenizer in {teacher} is not that of the student, in {student}")


def load_teacher(folder: Path, config: Any, precision: str, device: torch.device, where: str) -> Any:
    """The model in a folder, on the device. config: of the student. Raises InputError for one that cannot teach it."""
    model, _ = load_model(folder, precision)
    for key, ours, theirs in (
        ("vocabulary", config.vocab_size, model.config.vocab_size),
        ("context", context_of(config), min(context_of(config), context_of(model.config))),
    ):
        if ours != theirs:
            raise InputError(f"{where}.teacher: its {key} is {theirs}, and that of the student {ours}")
    return model.to(device)
