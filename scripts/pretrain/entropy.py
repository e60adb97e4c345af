"""Cross-entropy of a training batch whose gradient is made with the loss, in the place of the logits.

The gradient of the mean loss is (softmax(logits) - one-hot(target)) / n. torch keeps the logarithm of the softmax for it, and
fills two more arrays of the logits' size in the backward pass; here the logits themselves become the gradient, a few rows at a time
so that they are still in the processor's cache. As Liger's fused_linear_cross_entropy does, but for the head's matrix, which stays outside:
https://arxiv.org/abs/2410.10989. It takes the memory of one array of logits, not of three, and no more time than torch on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

CACHE = 1 << 22  # bytes of logits at once on a CPU
GPU = 1 << 28  # on a GPU, where a few large kernels are faster than many small ones


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor, z_loss: float) -> torch.Tensor:
        count, vocabulary = logits.shape
        gradient, wanted = logits.detach(), targets[:, None]
        rows = max(1, (GPU if logits.is_cuda else CACHE) // (vocabulary * logits.element_size()))
        total = logits.new_zeros(())
        for part, target in zip(gradient.split(rows), wanted.split(rows), strict=True):
            chosen, most = part.gather(1, target), part.amax(1, keepdim=True)
            whole = part.sub_(most).exp_().sum(1, keepdim=True)
            partition = whole.log() + most  # the logarithm of the softmax's denominator
            total += (partition - chosen).sum()
            part.mul_((1 + 2 * z_loss * partition if z_loss else 1) / (whole * count))
            part.scatter_add_(1, target, torch.full_like(most, -1 / count))
        ctx.gradient = gradient
        return total / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        gradient, ctx.gradient = ctx.gradient, None  # which a second pass through the graph would scale again
        return gradient.mul_(scale), None, None


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, z_loss: float = 0.0) -> torch.Tensor:
    """The mean cross-entropy in nats of fp32 logits [n, vocabulary] and int64 targets [n], each of which counts.

    Its gradient, not its value, has `z_loss` times that of the mean square of the softmax's log-denominator too, which keeps logits near
    0 (PaLM, https://arxiv.org/abs/2204.02311, section 5). The logits are used up: their memory holds the gradient. Not finite logits give
    a loss and a gradient that are not.
    """
    return _CrossEntropy.apply(logits, targets, z_loss)
