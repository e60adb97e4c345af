"""Attention that does not cross the borders of documents in a packed window (document_masking).

A document in a window is the end-of-text token before it and its own tokens, as validation and evaluation show it to the model
(scripts/pretrain/heldout.py): that token begins a document as input, and ends one as target. What a window begins in the middle of is a
document too. Positions count from 0 in each. From such positions transformers makes a block-diagonal mask (find_packed_sequence_indices in
its masking_utils.py), which SDPA takes on a CPU and on a GPU, there without its flash kernel.
"""

from __future__ import annotations

from typing import Any

import torch

from scripts.workflow.errors import InputError

# Types whose logits a test found to be those of each document alone. Others may ignore positions, or carry state over borders (Mamba).
TRIED = ("gemma2", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "olmo2", "olmoe", "phi3", "qwen2", "qwen3")


def positions(tokens: torch.Tensor, eos: int) -> torch.Tensor:
    """The position of each token in its document: int64 [n, length], of token ids of that shape."""
    places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    return places - torch.where(tokens == eos, places, 0).cummax(1).values


def check(settings: dict[str, Any]) -> None:
    """InputError where pretrain.train asks for masks that the architecture is not known to keep."""
    kind = settings["model"]["type"]
    if settings.get("document_masking") and kind not in TRIED:
        raise InputError(
            f"pretrain.train.document_masking is true, and pretrain.train.model.type is {kind!r}: it was tried with {', '.join(TRIED)}; "
            "take one of these, or set document_masking to false"
        )
