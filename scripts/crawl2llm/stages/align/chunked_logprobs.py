"""Log-probabilities of targets whose logits are never there all at once: made in chunks, and once more in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch.utils.checkpoint import checkpoint

from crawl2llm.core.errors import InputError
from crawl2llm.training.batch import IGNORE


class ChunkedHead:
    """Has a model's head return log-probabilities of its targets where it has some: fp32 [n, length], 0 where a target is IGNORE.

    What belongs to those never reaches the head. rows: tokens at once. As training/fused_cross_entropy.py has it of a loss that is their
    mean; here what each of them counts is known after the forward pass alone.
    """

    def __init__(self, head: torch.nn.Module, rows: int, where: str) -> None:
        if not isinstance(head, torch.nn.Linear):
            raise InputError(
                f"{where}.loss_chunk is {rows}, but the head of this model is a {type(head).__name__}, not a Linear: set it to 0"
            )
        self.logits, self.rows, self.where = head.forward, rows, where
        self.targets: torch.Tensor | None = None  # int64 [n, length]
        self.found: torch.Tensor | None = None
        head.forward = self.forward  # type: ignore[method-assign, assignment]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of hidden states [n, length, width], or the log-probabilities."""
        if self.targets is None:
            return self.logits(hidden)
        counted = self.targets != IGNORE
        parts = zip(hidden[counted].split(self.rows), self.targets[counted].split(self.rows), strict=True)
        found: list[Any] = [checkpoint(self.part, *part, use_reentrant=False) for part in parts]
        out = torch.zeros(self.targets.shape, device=hidden.device) + 0 * hidden.sum()
        self.found = out.masked_scatter(counted, torch.cat(found))
        return self.found

    def part(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of hidden states [k, width] and targets [k]: fp32 [k]."""
        return -functional.cross_entropy(self.logits(hidden).float(), targets, reduction="none")

    def of(self, forward: Callable[[], Any], targets: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """(log-probabilities, what the model returned) of a forward pass. Raises InputError for a model that changes its logits after."""
        self.targets = targets
        try:
            found = forward()
        finally:
            self.targets = None
        if self.found is None or found.logits.data_ptr() != self.found.data_ptr():
            raise InputError(
                f"{self.where}.loss_chunk is {self.rows}, but this architecture changes its logits after the head: set it to 0"
            )
        self.found = None
        return found.logits, found
