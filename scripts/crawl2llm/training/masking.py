"""Attention that does not cross the borders of documents in a packed window (document_masking).

A document in a window is the end-of-text token before it and its own tokens, as validation and evaluation show it to the model
(training/heldout.py): that token begins a document as input, and ends one as target. What a window begins in the middle of is a
document too. Positions count from 0 in each. From such positions transformers makes a block-diagonal mask (find_packed_sequence_indices in
its masking_utils.py), which SDPA takes on a CPU and on a GPU, there without its flash kernel.
"""

from __future__ import annotations

import torch


def document_positions(tokens: torch.Tensor, eos: int) -> torch.Tensor:
    """The position of each token in its document: int64 [n, length], of token ids of that shape."""
    places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    return places - torch.where(tokens == eos, places, 0).cummax(1).values


def document_numbers(places: torch.Tensor) -> torch.Tensor:
    """The number of each token's document in its window, from 0: int64 [n, length], of positions as `document_positions` makes them."""
    return (torch.diff(places, prepend=places[:, :1] - 1, dim=-1) != 1).cumsum(-1)
