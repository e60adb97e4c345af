"""Any engine of pre-training, whose loss compares a student with what a teacher says of the same tokens.

Logits are there for a piece of the tokens at a time, of the student and of the teacher: the head makes the loss out of hidden states, and
once more in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch.utils.checkpoint import checkpoint

from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress.teacher_output import changed_logits, rows_at_once
from crawl2llm.training import engine
from crawl2llm.training.batch import IGNORE
from crawl2llm.training.engines.by_name import ENGINES

# Of fp32 logits [n, vocabulary], int64 targets [n] and the parts of a lesson for these tokens: the sum of their losses.
PieceLoss = Callable[..., torch.Tensor]
Lesson = tuple[torch.Tensor, ...]  # what a teacher says of each token of a micro-batch, [n, length, …] each


class DistillingHead:
    """Has a student's head return the loss where there are targets: fp32 [], the sum over those that are not IGNORE."""

    def __init__(self, head: torch.nn.Module, vocabulary: int, piece_loss: PieceLoss, where: str) -> None:
        self.logits, self.vocabulary, self.piece_loss, self.where = head.forward, vocabulary, piece_loss, where
        self.targets: torch.Tensor | None = None  # int64 [n, length]
        self.lesson: Lesson = ()
        self.loss: torch.Tensor | None = None
        head.forward = self.forward

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of hidden states [n, length, width], or the loss."""
        if self.targets is None:
            return cast(torch.Tensor, self.logits(hidden))
        mask, rows = self.targets != IGNORE, rows_at_once(hidden, self.vocabulary)
        parts = (hidden[mask], self.targets[mask], *(part[mask] for part in self.lesson))
        pieces = zip(*(part.split(rows) for part in parts), strict=True)
        losses: list[Any] = [checkpoint(self.loss_of_piece, *piece, use_reentrant=False) for piece in pieces]
        self.loss = (
            torch.stack(losses).sum() + 0 * hidden.sum()
        )  # so that each process has a gradient, also of no token
        return self.loss

    def loss_of_piece(self, hidden: torch.Tensor, targets: torch.Tensor, *lesson: torch.Tensor) -> torch.Tensor:
        """Of hidden states [k, width], targets [k] and a lesson [k, …]: fp32 []."""
        return self.piece_loss(self.logits(hidden).float(), targets, *lesson)

    def loss_of(self, forward: Callable[[], Any], targets: torch.Tensor, lesson: Lesson) -> tuple[torch.Tensor, Any]:
        """(loss, what the model returned) of a forward pass. Raises InputError for a model that changes its logits after the head."""
        self.targets, self.lesson = targets, lesson
        try:
            output = forward()
        finally:
            self.targets, self.lesson = None, ()
        if self.loss is None or output.logits.data_ptr() != self.loss.data_ptr():
            raise InputError(changed_logits(self.where))
        self.loss = None
        return output.logits, output


class DistillingEngine(engine.Engine):
    """Any engine, with `distil_by` beside what it has."""

    distilling: DistillingHead
    lessons: Iterator[Lesson]  # of the step's micro-batches
    lesson: Lesson

    def distil_by(self, piece_loss: PieceLoss, where: str) -> None:
        """Train by this loss from now on."""
        head, vocabulary = self.model.get_output_embeddings(), self.model.config.vocab_size
        self.distilling = DistillingHead(head, vocabulary, piece_loss, where)

    def _begin_micro_batch(self, last: bool) -> None:
        """As `engine.Engine._begin_micro_batch`; the teacher says what it has to say, before the student's activations are there."""
        self.lesson = next(self.lessons)
        super()._begin_micro_batch(last)

    def _micro_batch_loss(
        self, inputs: torch.Tensor, targets: torch.Tensor, more: dict[str, Any], scale: torch.Tensor | None
    ) -> tuple[torch.Tensor, Any]:
        loss, output = self.distilling.loss_of(partial(self.forward, inputs, **more), targets, self.lesson)
        return loss if scale is None else scale * loss, output


def engine_class(name: str) -> type[DistillingEngine]:
    """The class of an engine by its name, as in `ENGINES`."""
    return cast(type[DistillingEngine], type("Distilling", (DistillingEngine, ENGINES[name]), {}))
