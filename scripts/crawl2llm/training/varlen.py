"""Attention inside documents and sliding windows without a mask: torch's variable-length attention, a flash kernel, for transformers.

Rows of documents are one sequence of tokens, and `cu_seq_lens_q` says where each document begins: no mask of context × context, and no
copies of key and value heads. The names of the arguments are transformers' (FlashAttentionKwargs). A pass without them, such as a
validation, runs as under `sdpa`. On a CPU, where torch has no kernel, the same arguments go to SDPA document by document: for tests.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from crawl2llm.training.batch import Batch

NAME = "crawl2llm_varlen"
OPERATOR = torch.ops.torch_attn._varlen_attn.default
# torch 2.13 wants to be told that there are fewer key and value heads; 2.11 takes them as they are.
HAS_GQA_ARGUMENT = "enable_gqa" in inspect.signature(varlen_attn).parameters
# Whose logits a test found to be those of each document alone. Gemma 2 caps its scores, which the kernel cannot.
TYPES = ("gpt2", "gpt_neox", "llama", "mistral", "mixtral", "olmo2", "olmoe", "phi3", "qwen2", "qwen3")
WIDEST_HEAD = 256  # of flash attention
FEWEST = 16  # documents that a call has room for
Parts = tuple[torch.Tensor, ...]  # queries, keys and values: [tokens, heads, size] each

_given = False  # whether the pass that is under way says where documents begin


def can_run(config: PreTrainedConfig, device: torch.device, precision: str) -> bool:
    """Whether a model has the kernel on a device: flash attention is for bf16 and fp16, and for Ampere and newer GPUs."""
    if device.type != "cuda" or precision == "fp32" or config.model_type not in TYPES:
        return False
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return width <= WIDEST_HEAD and width % 8 == 0 and torch.cuda.get_device_capability(device) >= (8, 0)


def enable(model: PreTrainedModel) -> None:
    """Have a model's attention take the arguments of `document_arguments`; without them it runs as before."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, _mask)
    model.config._attn_implementation = NAME


@contextlib.contextmanager
def plain_attention(model: torch.nn.Module) -> Iterator[None]:
    """A model that attends as under `sdpa` until the end: in slots its masks are replaced by those of each row's place."""
    configs = {id(config): config for each in model.modules() if (config := getattr(each, "config", None)) is not None}
    enabled = [config for config in configs.values() if getattr(config, "_attn_implementation", None) == NAME]
    for config in enabled:
        config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        for config in enabled:
            config._attn_implementation = NAME


def _mask(**more: Any) -> torch.Tensor | None:
    return None if _given else sdpa_mask(**more)


@contextlib.contextmanager
def without_mask(is_given: bool) -> Iterator[None]:
    """A forward pass that has the arguments of `document_arguments`, if `is_given`: transformers makes no mask for it."""
    global _given
    before, _given = _given, is_given
    try:
        yield
    finally:
        _given = before


def needs_borders(config: PreTrainedConfig, length: int) -> bool:
    """Whether a row of so many tokens needs a mask even if it is one document: in a sliding window that is shorter."""
    window = getattr(config, "sliding_window", None)
    return bool(window and window < length and getattr(config, "use_sliding_window", True))


def room_for_documents(batch: Batch, border: int | None, before: int = 0) -> int:
    """The most documents in a micro-batch of a batch on the CPU, rounded up to a power of two; at least `before`.

    Few numbers, so that few shapes are compiled. border: the end-of-text token, with which a document begins; None: positions say it.
    """
    counts = [before, FEWEST]
    for part in batch:
        if border is not None:
            inputs = part[:, :-1] if isinstance(part, torch.Tensor) else part[0]
            counts.append(len(inputs) + int((inputs[:, 1:] == border).sum()))
        elif not isinstance(part, torch.Tensor) and len(part) > 2:
            counts.append(int((part[2] == 0).sum()))
    return 1 << (max(counts) - 1).bit_length()


def document_arguments(inputs: torch.Tensor, positions: torch.Tensor | None, room: int | None) -> dict[str, Any]:
    """What attention needs to stay within documents; inputs: token ids [n, length].

    positions: of each token in its document, [n, length], 0 where one begins; None: each row is one. room: of documents, at least as many
    as there are; what is left is empty ones. None asks the device how many there are, and waits for it.
    """
    rows, length = inputs.shape
    if positions is None:
        borders = torch.arange(0, rows * length + 1, length, device=inputs.device, dtype=torch.int32)
    else:
        begins = positions.flatten() == 0
        size = int(begins.sum()) if room is None else room
        starts = torch.nonzero_static(begins, size=size, fill_value=rows * length).flatten()
        borders = torch.nn.functional.pad(starts, (0, 1), value=rows * length).to(torch.int32)
    return {"cu_seq_lens_q": borders, "cu_seq_lens_k": borders, "max_length_q": length, "max_length_k": length}


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of query [n, heads, length, size] to key and value [n, kv heads, length, size]: [n, length, heads, size]."""
    if cu_seq_lens_q is None or max_length_q is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)
    rows, heads, length, size = query.shape
    # Under autocast, which does not know the operator, rotations have made queries and keys fp32.
    parts = tuple(part.to(value.dtype).transpose(1, 2).flatten(0, 1) for part in (query, key, value))
    attend = _attend_by_document if query.device.type == "cpu" else _attend
    output = attend(parts, cu_seq_lens_q, max_length_q, scaling, sliding_window)
    return output.view(rows, length, heads, size), None


def _attend(parts: Parts, borders: torch.Tensor, longest: int, scale: float | None, window: int | None) -> torch.Tensor:
    """By torch's kernel. window: keys that a query sees, itself among them."""
    query, key, value = parts
    more: dict[str, Any] = {"enable_gqa": query.shape[1] != key.shape[1]} if HAS_GQA_ARGUMENT else {}
    left = -1 if window is None or window >= longest else window - 1
    output = varlen_attn(
        query, key, value, borders, borders, longest, longest, scale=scale, window_size=(left, 0), **more
    )
    return cast(torch.Tensor, output)


def _attend_by_document(
    parts: Parts, borders: torch.Tensor, longest: int, scale: float | None, window: int | None
) -> torch.Tensor:
    """As `_attend`, with one call of SDPA for each document."""
    outputs = []
    for document in zip(*(part.tensor_split(borders[1:-1].cpu().long()) for part in parts), strict=True):
        if not (tokens := len(document[0])):
            continue
        places = torch.arange(tokens)
        away = places[:, None] - places
        mask = None if window is None or window >= tokens else (away >= 0) & (away < window)
        queries, keys, values = (part.transpose(0, 1)[None] for part in document)
        attended = scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
        )
        outputs.append(attended[0].transpose(0, 1))
    return torch.cat(outputs)
