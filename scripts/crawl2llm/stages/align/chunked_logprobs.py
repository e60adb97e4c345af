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
    """Has a model's head return log-probabilities of its targets where it has some: fp32 [n, length], 0 if a target is IGNORE.

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
        self.logprobs: torch.Tensor | None = None
        head.forward = self.forward  # type: ignore[method-assign, assignment]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of hidden states [n, length, width], or the log-probabilities."""
        if self.targets is None:
            return self.logits(hidden)
        mask = self.targets != IGNORE
        parts = zip(hidden[mask].split(self.rows), self.targets[mask].split(self.rows), strict=True)
        chunk_values: list[Any] = [checkpoint(self.chunk_logprobs, *part, use_reentrant=False) for part in parts]
        out = torch.zeros(self.targets.shape, device=hidden.device) + 0 * hidden.sum()
        self.logprobs = out.masked_scatter(mask, torch.cat(chunk_values))
        return self.logprobs

    def chunk_logprobs(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of hidden states [k, width] and targets [k]: fp32 [k]."""
        return -functional.cross_entropy(self.logits(hidden).float(), targets, reduction="none")

    def target_logprobs(self, forward: Callable[[], Any], targets: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """(log-probabilities, what the model returned) of a forward pass. Raises InputError for a model that changes its logits after."""
        self.targets = targets
        try:
            output = forward()
        finally:
            self.targets = None
        if self.logprobs is None or output.logits.data_ptr() != self.logprobs.data_ptr():
            raise InputError(
                f"{self.where}.loss_chunk is {self.rows}, but this architecture changes its logits after the head: set it to 0"
            )
        self.logprobs = None
        return output.logits, output
