"""How the decoder layers run: compiled one by one, and which of their activations are kept for the backward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from transformers import PreTrainedModel, masking_utils

from scripts.pretrain import initial

BACKEND = "inductor"
# Results that are kept: they cost most to compute. Norms, rotations and activations are computed again, which reads memory and hardly
# computes. As in torchtitan (distributed/activation_checkpoint.py), which keeps every second matrix product; here all are.
DEAR = frozenset(
    getattr(torch.ops.aten, name).default
    for name in (
        "mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable",
    )
)  # fmt: skip


def _policy(_: Any, operator: Any, *args: Any, **more: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in DEAR else CheckpointPolicy.PREFER_RECOMPUTE


def recompute(model: PreTrainedModel, selective: bool) -> None:
    """Have each layer compute its activations again in the backward pass; `selective`: but for the results of DEAR operators."""
    options: dict[str, Any] = {"use_reentrant": False}
    if selective:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    model.gradient_checkpointing_enable(options)


def compiled(model: nn.Module) -> None:
    """Compile each layer's forward pass, in place; hooks of engines stay outside. To be called when the engine has wrapped the model.

    The whole model is not compiled: transformers then gives attention a mask of its own, and its flash kernel is lost. All layers share
    what is compiled for the first.
    """
    for block in initial.blocks(model):
        block.forward = torch.compile(block.forward, backend=BACKEND, fullgraph=True, dynamic=False)


@contextlib.contextmanager
def unpacked(known: bool = True) -> Iterator[None]:
    """A forward pass in which each row is one sequence, where that is `known`: transformers 5.23 looks for positions that begin again, and
    waits for the device to say that there are none, once in each forward pass (masking_utils.find_packed_sequence_indices).
    """
    found = masking_utils.find_packed_sequence_indices
    if known:
        masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = found


def plainly(on: bool) -> contextlib.AbstractContextManager[Any]:
    """Where `on`, compiled layers run as they are written: for batches of many lengths, each of which would be compiled."""
    return torch.compiler.set_stance("force_eager") if on else contextlib.nullcontext()
