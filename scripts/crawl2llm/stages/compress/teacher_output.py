"""What a model gives of whose logits no more than a piece is ever there: hidden states, and how many tokens a piece has."""

from __future__ import annotations

from typing import Any

import torch

from crawl2llm.core.errors import InputError
from crawl2llm.training.estimate.parts import GPU_PIECE, PIECE

IDS, LOGPROBS = "ids.npy", "logprobs.npy"  # how the two files end that compress.teach writes of a part of the windows


def rows_at_once(tensor: torch.Tensor, vocabulary: int) -> int:
    """The tokens of a piece, where the tensor is."""
    return max(1, (GPU_PIECE if tensor.is_cuda else PIECE) // (4 * vocabulary))


def changed_logits(where: str) -> str:
    """The error for a model whose logits are not those of its head."""
    return f"{where} does not take models of this architecture, which changes its logits after the head"


def headless(model: Any) -> Any:
    """Have a model return hidden states in the place of logits; what makes logits of them."""
    head = model.get_output_embeddings()
    logits, head.forward = head.forward, same
    return logits


def same(hidden: torch.Tensor) -> torch.Tensor:
    """What it is given."""
    return hidden


def hidden_states(model: Any, inputs: torch.Tensor, where: str) -> torch.Tensor:
    """The hidden states of a headless model, [n, length, width]. Raises InputError for one that changes its logits after the head."""
    head, given = model.get_output_embeddings(), list[torch.Tensor]()
    hook = head.register_forward_hook(lambda _head, _inputs, output: given.append(output))
    with torch.autocast(inputs.device.type, enabled=False):
        out: torch.Tensor = model(input_ids=inputs, use_cache=False).logits
    hook.remove()
    same_numbers = out.data_ptr() == given[-1].data_ptr() or (
        out.dtype != given[-1].dtype and torch.equal(out, given[-1].to(out.dtype))
    )
    if out.shape[-1] != head.in_features or not same_numbers:
        raise InputError(changed_logits(where))
    return out
