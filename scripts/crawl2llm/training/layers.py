"""How the decoder layers run: compiled one by one, and which of their activations are kept for the backward pass."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from transformers import PreTrainedModel, masking_utils
from transformers.utils import output_capturing

from crawl2llm.training import initial, masking, routers, varlen

BACKEND = "inductor"
# Results that are kept: they cost most to compute. Norms, rotations and activations are computed again, which reads memory and hardly
# computes. As in torchtitan (distributed/activation_checkpoint.py), which keeps every second matrix product; here all are.
SAVED_OPERATORS = frozenset(
    getattr(torch.ops.aten, name).default
    for name in (
        "mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "_scaled_mm", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable",
    )
) | {varlen.OPERATOR}  # fmt: skip


def _checkpoint_policy(_: Any, operator: Any, *args: Any, **more: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in SAVED_OPERATORS else CheckpointPolicy.PREFER_RECOMPUTE


def recompute_activations(model: PreTrainedModel, selective: bool) -> None:
    """Have each layer compute its activations again in the backward pass; `selective`: except the results of SAVED_OPERATORS."""
    options: dict[str, Any] = {"use_reentrant": False}
    if selective:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _checkpoint_policy)
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(options)
    else:  # transformers 5.17, with which gpu-check works too
        model.gradient_checkpointing_enable(options)


def compile_layers(model: PreTrainedModel) -> None:
    """Compile each layer's forward pass, in place; hooks of engines stay outside. To be called when the engine has wrapped the model.

    The whole model is not compiled: transformers then gives attention a mask of its own, and its flash kernel is lost. All layers share
    what is compiled for the first. DDP is not to cut a layer at its buckets, which would make several graphs of one; and a layer that is
    computed again does not hand over its routers' outputs again.
    """
    torch._dynamo.config.optimize_ddp = False
    torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint = True
    base: Any = model.base_model
    output_capturing.maybe_install_capturing_hooks(base)
    for block in initial.decoder_layers(model):
        recorders = _take_router_hooks(block)
        forward = torch.compile(block.forward, backend=BACKEND, fullgraph=True, dynamic=False)
        block.forward = partial(_forward_and_record, forward, recorders) if recorders else forward


def _take_router_hooks(block: nn.Module) -> list[tuple[nn.Module, list[Any]]]:
    """(router, transformers' hooks and those of training/routers.py that record its output) of a layer; its routers keep their output
    from now on.

    transformers' hooks inside of a layer ask a ContextVar, which dynamo cannot trace (5.23, utils/output_capturing.py). They are
    removed: those of routers are called behind the compiled layer, and training asks for nothing of the others.
    """
    recorders = []
    for module in (module for module in block.modules() if module is not block):
        hooks = []
        for number, hook in list(module._forward_hooks.items()):
            if getattr(hook, "__module__", "") not in (output_capturing.__name__, routers.__name__):
                continue
            del module._forward_hooks[number]
            if hook.__module__ == routers.__name__ or routers.logits_place(hook) is not None:
                hooks.append(hook)
        if hooks:
            module.register_forward_hook(_keep_output)
            recorders.append((module, hooks))
    return recorders


def _keep_output(module: nn.Module, _: Any, output: Any) -> None:
    module.kept = output


def _forward_and_record(forward: Any, recorders: list[tuple[nn.Module, list[Any]]], *args: Any, **more: Any) -> Any:
    """A layer's forward pass, and then what is to be recorded of its routers."""
    output = forward(*args, **more)
    for router, hooks in recorders:
        kept = router.__dict__.pop("kept")
        for hook in hooks:
            hook(router, (), kept)
    return output


@contextlib.contextmanager
def without_packing_search(rows_are_single: bool = True, device: str = "cpu") -> Iterator[None]:
    """A forward pass in which each row is one sequence, if `rows_are_single` says so: transformers 5.23 looks for positions that begin
    again, and waits for the device to say that there are none, once in each forward pass (masking_utils.find_packed_sequence_indices). If
    it is not known a GPU is not asked; on a CPU, where asking costs nothing, a batch without a border needs no mask.

    Rows as long as a sliding window need no mask either, for which transformers asks for shorter ones.
    """
    search, ignores_mask = masking_utils.find_packed_sequence_indices, masking_utils._ignore_causal_mask_sdpa
    if rows_are_single:
        masking_utils.find_packed_sequence_indices = lambda position_ids: None
    elif device != "cpu":
        masking_utils.find_packed_sequence_indices = masking.document_numbers  # type: ignore[assignment]
    masking_utils._ignore_causal_mask_sdpa = partial(_needs_no_mask, ignores_mask)
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices, masking_utils._ignore_causal_mask_sdpa = search, ignores_mask


def _needs_no_mask(
    inner: Any, padding: Any, queries: int, keys: int, offset: Any, first: Any, window: int | None = None
) -> bool:
    """As `inner`, _ignore_causal_mask_sdpa of transformers, except that a sliding window which covers all keys is none."""
    return bool(inner(padding, queries, keys, offset, first, None if queries == keys == window else window))


def force_eager(on: bool) -> contextlib.AbstractContextManager[Any]:
    """Where `on`, compiled layers run as they are written: for batches of many lengths, each of which would be compiled."""
    return torch.compiler.set_stance("force_eager") if on else contextlib.nullcontext()


def autocast_products() -> None:
    """Have autocast make the products of experts in its precision too, from now on in this process, as it does all other products.

    torch's autocast does not know grouped products (https://github.com/pytorch/pytorch/issues/174763). In fp32 each waits for the
    device, and compiled layers take transformers' loop over experts (5.23, integrations/moe.py).
    """
    from transformers.integrations import moe

    inner = moe._grouped_mm
    if hasattr(inner, "__wrapped__"):
        return

    @functools.wraps(inner)
    def grouped_mm(input: Any, weight: Any, offs: Any) -> Any:
        if torch.is_autocast_enabled(weight.device.type):
            weight = weight.to(torch.get_autocast_dtype(weight.device.type))
        return inner(input, weight, offs)

    moe._grouped_mm = grouped_mm
