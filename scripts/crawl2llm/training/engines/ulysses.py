"""Attention over a sequence whose parts lie on several processes: each process has all positions for some of the heads.

DeepSpeed-Ulysses (Jacobs et al. 2023, https://arxiv.org/abs/2309.14509): before attention, processes exchange parts of the sequence for
heads, and after it back. In between it is torch's, causal, over whole sequences.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "crawl2llm_sequence"


class _Exchange(torch.autograd.Function):
    """All-to-all along a tensor's first dimension, which has one entry for each process."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group, sent = group, value.contiguous()
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=group)
        return received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _Exchange.apply(gradient, ctx.group), None


def split_heads(value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """[n, heads, part, size] of this process's part of the sequence → [n, heads / processes, whole, size]."""
    processes, (n, heads, part, size) = group.size(), value.shape
    sent = value.reshape(n, processes, heads // processes, part, size).transpose(0, 1)
    return _Exchange.apply(sent, group).permute(1, 2, 0, 3, 4).reshape(n, heads // processes, -1, size)


def split_sequence(value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """[n, whole, heads / processes, size] → [n, part, heads, size]: back again, in the order of dimensions of what attention returns."""
    processes, (n, whole, heads, size) = group.size(), value.shape
    sent = value.reshape(n, processes, whole // processes, heads, size).transpose(0, 1)
    return _Exchange.apply(sent, group).permute(1, 2, 0, 3, 4).reshape(n, whole // processes, -1, size)


def register_attention(group: dist.ProcessGroup) -> str:
    """Give transformers an attention over the processes of `group`; the name to set it by."""

    def attention(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **more: Any,
    ) -> tuple[torch.Tensor, None]:
        queries, keys, values = (split_heads(each, group) for each in (query, key, value))
        output, _ = sdpa_attention_forward(module, queries, keys, values, None, **more)
        return split_sequence(output, group), None

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)  # causal attention needs none
    return NAME
