"""Cross-entropy of a training batch whose gradient is made with the loss, in the place of the logits; on demand with the head, in pieces.

The gradient of the mean loss is (softmax(logits) - one-hot(target)) / n. torch keeps the logarithm of the softmax for it, and
fills two more arrays of the logits' size in the backward pass; here the logits themselves become the gradient, a few rows at a time
so that they are still in the processor's cache. It takes the memory of one array of logits, not of three, and no more time than
torch on a CPU. `linear_cross_entropy` takes in the head's matrix too, as Liger's fused_linear_cross_entropy does:
https://arxiv.org/abs/2410.10989.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch.autograd.function import once_differentiable

from crawl2llm.core.errors import InputError
from crawl2llm.training.batch import IGNORE

CACHE = 1 << 20  # bytes of logits at once on a CPU: half of a core's own cache
GPU_BYTES = 1 << 28  # on a GPU, where a few large kernels are faster than many small ones
PIECE = 1 << 26  # and where nothing takes the place of the logits, so that a piece of them is there several times


def _loss_with_gradient(
    part: torch.Tensor, target: torch.Tensor, z_loss: float, count: int, counted: torch.Tensor | None = None
) -> torch.Tensor:
    """The sum of the losses of fp32 logits [n, vocabulary], which become the gradient of the mean over `count`. target: [n, 1].

    counted: the rows that count, bool [n, 1]; None: all.
    """
    target_logits, row_maxima = part.gather(1, target), part.amax(1, keepdim=True)
    denominators = part.sub_(row_maxima).exp_().sum(1, keepdim=True)
    partition = denominators.log() + row_maxima  # the logarithm of the softmax's denominator
    part.mul_((1 + 2 * z_loss * partition if z_loss else 1) / (denominators * count))
    part.scatter_add_(1, target, torch.full_like(row_maxima, -1 / count))
    if counted is None:
        return (partition - target_logits).sum()
    part.mul_(counted)
    return ((partition - target_logits) * counted).sum()


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor, z_loss: float) -> torch.Tensor:
        count, vocabulary = logits.shape
        gradient, target_column = logits.detach(), targets[:, None]
        rows = max(1, (GPU_BYTES if logits.is_cuda else CACHE) // (vocabulary * logits.element_size()))
        total = logits.new_zeros(())
        for part, target in zip(gradient.split(rows), target_column.split(rows), strict=True):
            total += _loss_with_gradient(part, target, z_loss, count)
        ctx.gradient = gradient
        return total / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        gradient, ctx.gradient = ctx.gradient, None  # which a second pass through the graph would scale again
        if gradient is None:
            raise RuntimeError("the gradient of this loss is used up: it has one backward pass")
        return gradient.mul_(scale), None, None


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, z_loss: float = 0.0) -> torch.Tensor:
    """The mean cross-entropy in nats of fp32 logits [n, vocabulary] and int64 targets [n], each of which counts.

    Its gradient, not its value, has `z_loss` times that of the mean square of the softmax's log-denominator too, which keeps logits near
    0 (PaLM, https://arxiv.org/abs/2204.02311, section 5). The logits are used up: their memory holds the gradient. Not finite logits give
    a loss and a gradient that are not.
    """
    return _CrossEntropy.apply(logits, targets, z_loss)


class _SummedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor, ignored: int) -> torch.Tensor:
        gradient, target_column = logits.detach(), targets[:, None]
        rows = max(1, (GPU_BYTES if logits.is_cuda else CACHE) // (logits.shape[1] * logits.element_size()))
        total = logits.new_zeros(())
        for part, target in zip(gradient.split(rows), target_column.split(rows), strict=True):
            counted = target != ignored
            total += _loss_with_gradient(part, target.where(counted, 0), 0.0, 1, counted)
        ctx.gradient = gradient
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(scale), None, None


def summed_cross_entropy(logits: torch.Tensor, targets: torch.Tensor, ignored: int) -> torch.Tensor:
    """As `cross_entropy`, but the sum, and over the targets that are not `ignored`."""
    return _SummedCrossEntropy.apply(logits, targets, ignored)


def keep_nonfinite_gradient(loss: torch.Tensor) -> torch.Tensor:
    """A loss as it is; if it is not finite, one whose gradient is not finite either.

    The gradient of such a loss can be finite by itself (a target of probability 0), and would get through.
    """
    return loss * torch.where(loss.detach().isfinite(), 1.0, float("nan"))


def loss_by_row(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of each row in nats, summed over its targets that are not IGNORE: float64 [n].

    logits: [n, length, vocabulary]. targets: int64 [n, length]. What is made of the logits, in fp32, is there a piece at a time.
    """
    flat, flat_targets = logits.flatten(0, 1), targets.flatten()
    rows = max(1, (PIECE if logits.is_cuda else CACHE) // (4 * logits.shape[-1]))
    losses = [nats_by_target(*part) for part in zip(flat.split(rows), flat_targets.split(rows), strict=True)]
    return torch.cat(losses).double().reshape(targets.shape).sum(1)


def nats_by_target(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of logits [n, vocabulary] in nats, 0 if a target is IGNORE: fp32 [n]."""
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORE, reduction="none")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        z_loss: float,
        rows: int,
    ) -> torch.Tensor:
        kind = hidden.device.type
        mixed = kind != "meta" and torch.is_autocast_enabled(kind)
        low = torch.get_autocast_dtype(kind) if mixed else hidden.dtype
        count, total = max(1, len(hidden)), torch.zeros((), device=hidden.device)
        low_weight, of_hidden = weight.detach().to(low), torch.empty_like(hidden)
        of_weight = torch.zeros_like(weight, dtype=torch.float32)
        of_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        with torch.autocast(kind, enabled=False) if mixed else contextlib.nullcontext():
            for start in range(0, len(hidden), rows):
                part = hidden.detach()[start : start + rows].to(low)
                logits = part @ low_weight.T if bias is None else torch.addmm(bias.detach().to(low), part, low_weight.T)
                gradient = logits.float()
                del logits  # of bf16 the gradient is a copy, and gets one of its own below
                total += _loss_with_gradient(gradient, targets[start : start + rows, None], z_loss, count)
                if of_bias is not None:
                    of_bias += gradient.sum(0)
                gradient = gradient.to(low)  # as the head's own backward pass gets it
                of_hidden[start : start + rows] = gradient @ low_weight
                of_weight += gradient.T @ part
        ctx.gradients = of_hidden, of_weight.to(weight.dtype), None if of_bias is None else of_bias.to(weight.dtype)
        return total / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, ()
        return *(None if gradient is None else gradient.mul_(scale) for gradient in gradients), None, None, None


def linear_cross_entropy(
    hidden: torch.Tensor, head: torch.nn.Linear, targets: torch.Tensor, z_loss: float, rows: int
) -> torch.Tensor:
    """`cross_entropy` of the logits `head(hidden)`, at most `rows` rows of them at a time; 0 of no rows.

    hidden: [n, width]; targets: int64 [n].
    The gradients of hidden and head are made with the loss, as in Liger's fused_linear_cross_entropy; the head's is added up in fp32.
    """
    return _Linear.apply(hidden, head.weight, head.bias, targets, z_loss, rows)


class Head:
    """Has a model's head return the loss of its targets where it has some, so that no logits leave it. What an engine does around the
    head, such as gathering its weights, stays as it is.
    """

    def __init__(self, head: torch.nn.Module, z_loss: float, rows: int, where: str) -> None:
        if not isinstance(head, torch.nn.Linear):
            raise InputError(
                f"{where}.loss_chunk is {rows}, but the head of this model is a {type(head).__name__}, not a Linear: set it to 0"
            )
        self.head, self.logits, self.z_loss, self.rows, self.where = head, head.forward, z_loss, rows, where
        self.targets: torch.Tensor | None = None  # int64 [k], those that count
        self.measured = False  # whether the loss of each target is wanted, without a gradient
        self.counted: torch.Tensor | None = None  # bool [n, length], which of the hidden states they are of; None: all
        self.loss: torch.Tensor | None = None
        head.forward = self.forward  # type: ignore[method-assign, assignment]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of hidden states [n, length, width], or the loss."""
        if self.targets is None:
            return self.logits(hidden)
        counted_hidden = hidden.flatten(0, -2) if self.counted is None else hidden[self.counted]
        if self.measured:
            pieces = zip(counted_hidden.split(self.rows), self.targets.split(self.rows), strict=True)
            self.loss = torch.cat([nats_by_target(self.logits(part), targets) for part, targets in pieces])
            return self.loss
        self.loss = linear_cross_entropy(counted_hidden, self.head, self.targets, self.z_loss, self.rows)
        return self.loss

    def loss_of(
        self, forward: Callable[[], Any], targets: torch.Tensor, scale: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Any]:
        """(loss, what the model returned) of a forward pass whose targets are int64 [n, length].

        The mean loss of targets that all count. With `scale`, of those that are not IGNORE: so many times their sum. What belongs to the
        others never reaches the head. Raises InputError for a model that changes its logits after the head.
        """
        number, output = self._run_with_targets(forward, targets, None if scale is None else targets != IGNORE)
        return output.logits if scale is None else scale * number * output.logits, output

    @torch.no_grad()
    def loss_by_row(self, forward: Callable[[], Any], targets: torch.Tensor) -> torch.Tensor:
        """As `loss_by_row` of the logits of a forward pass, of which at most `rows` are there at once. Raises InputError as `loss_of`."""
        self.measured = True
        try:  # of all targets: to take out those that count would wait for the device
            _, output = self._run_with_targets(forward, targets, None)
        finally:
            self.measured = False
        return output.logits.double().reshape(targets.shape).sum(1)

    def _run_with_targets(
        self, forward: Callable[[], Any], targets: torch.Tensor, counted: torch.Tensor | None
    ) -> tuple[int, Any]:
        """(number of targets that count, what the model returned), where the head returns what it makes of them."""
        self.counted = counted
        self.targets = targets.flatten() if counted is None else targets[counted]
        number = len(self.targets)
        try:
            output = forward()
        finally:
            self.targets = self.counted = None
        if (
            self.loss is None
            or output.logits.shape != self.loss.shape
            or output.logits.data_ptr() != self.loss.data_ptr()
        ):
            raise InputError(
                f"{self.where}.loss_chunk is {self.rows}, but this architecture changes its logits after the head: set it to 0"
            )
        self.loss = None
        return number, output
