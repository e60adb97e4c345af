"""Synthetic tokens that a model can learn: a walk through the vocabulary, of which 16 of all tokens can follow each token."""

from __future__ import annotations

from typing import Any

STEPS, STRIDE = 16, 7  # a step goes 0 to 15 strides on


def walk(shape: tuple[int, ...], vocabulary: int, seed: int) -> Any:
    """int64 `shape`, whose last dimension is the position; the same for the same seed."""
    import torch

    moves = torch.randint(0, STEPS, shape, generator=torch.Generator().manual_seed(seed))
    return (moves.cumsum(-1) * STRIDE) % vocabulary
