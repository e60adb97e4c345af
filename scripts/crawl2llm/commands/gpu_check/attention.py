"""Variable-length attention, forward and backward, against attention document by document."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as functional

from crawl2llm.commands.gpu_check.lines import SKIPPED, Line, at_most
from crawl2llm.commands.gpu_check.place import Place
from crawl2llm.commands.gpu_check.speed import median_seconds

MOST = 1e-2  # of bf16: |difference| / |reference|
Tensors = tuple[torch.Tensor, ...]


def by_document(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, borders: list[int]) -> torch.Tensor:
    """Causal attention within each document: [tokens, heads, width] each, keys and values of fewer heads. borders: from 0 to the end."""
    parts = []
    for start, end in pairwise(borders):
        q, k, v = (each[start:end].transpose(0, 1)[None] for each in (queries, keys, values))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)


def with_varlen(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, borders: list[int]) -> torch.Tensor:
    """The same by torch's own kernel, in one call."""
    from torch.nn.attention.varlen import varlen_attn

    known = inspect.signature(varlen_attn).parameters
    more: dict[str, Any] = {"window_size": (-1, 0)}  # causal
    if "enable_gqa" in known:
        more["enable_gqa"] = True  # torch 2.13; 2.11 takes fewer heads without
    at = torch.tensor(borders, dtype=torch.int32, device=queries.device)
    longest = max(end - start for start, end in pairwise(borders))
    out = varlen_attn(queries, keys, values, at, at, longest, longest, **more)
    assert isinstance(out, torch.Tensor)
    return out


def outcome(attend: Any, inputs: Tensors, upstream: torch.Tensor, borders: list[int]) -> Tensors:
    """Output and the gradients of the inputs."""
    leaves = [each.detach().clone().requires_grad_() for each in inputs]
    out = attend(*leaves, borders)
    return (out.detach(), *torch.autograd.grad(out, leaves, upstream.to(out.dtype)))


def check(place: Place) -> Iterator[Line]:
    """One line of the largest error, and one of the time beside attention that knows no documents."""
    if not place.on_gpu:
        yield Line("attention", "variable length", verdict=SKIPPED, note="torch has no backward of it on a CPU")
        return
    tokens, heads, kv_heads, width = 16_384, 32, 4, 64
    borders = [0, 700, 1500, 1501, 4096, 6000, 8192, 12_000, tokens]
    chance = torch.Generator(place.device).manual_seed(1)

    def draw(number: int) -> torch.Tensor:
        return torch.randn(tokens, number, width, device=place.device, generator=chance, dtype=torch.bfloat16)

    inputs, upstream = (draw(heads), draw(kv_heads), draw(kv_heads)), draw(heads)
    reference = outcome(by_document, tuple(each.float() for each in inputs), upstream, borders)
    errors = [
        float((here.float() - there).norm() / there.norm())
        for here, there in zip(outcome(with_varlen, inputs, upstream, borders), reference, strict=True)
    ]
    yield Line(
        "attention", "variable length, bf16", f"error {max(errors):.1e} of output and gradients", f"≤ {MOST:g}",
        at_most(max(errors), MOST), values={"errors": errors},
    )  # fmt: skip
    seconds = median_seconds(place, lambda: outcome(with_varlen, inputs, upstream, borders), 10)
    plain = median_seconds(place, lambda: outcome(by_document, inputs, upstream, borders), 10)
    measured = f"{seconds * 1e3:.2f} ms, document by document {plain * 1e3:.2f} ms"
    yield Line(
        "attention",
        f"{tokens:,} tokens, forward and backward",
        measured,
        values={"varlen": seconds, "by_document": plain},
    )
