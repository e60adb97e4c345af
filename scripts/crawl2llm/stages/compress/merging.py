"""Ways to merge tensors of several models into one, each computed as mergekit 0.1.5 computes it (github.com/arcee-ai/mergekit).

All take fp32 tensors of one shape and return one. None changes what it is given. A weight is a number for each tensor. Differences from
a base are fp32 as there, so that the same ones are the largest; means are taken in fp64, so that that of equal tensors is their value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from crawl2llm.stages.compress.settings import MergeSettings

PARALLEL = 0.9995  # cosine beyond which the arc is a line, by mergekit's merge_methods/slerp.py
SHORTEST = 1e-8  # norm of a tensor that counts as none, by the same


def merge_tensors(
    tensors: Iterable[Tensor], weights: Sequence[float], over: Tensor | None, settings: MergeSettings
) -> Tensor:
    """The tensors of several models as one, by the settings of compress.merge. over: that of the model which they are all made from."""
    if settings.method == "slerp":
        first, second = tensors
        return slerp(first, second, settings.t)
    if over is None:
        return average(tensors, weights)
    if settings.method == "ties":
        return ties(over, list(tensors), weights, settings.density)
    return task_arithmetic(over, list(tensors), weights)


def average(tensors: Iterable[Tensor], weights: Sequence[float]) -> Tensor:
    """The weighted mean (model soups, arXiv:2203.05482). `tensors` are taken one after another, so that one is in memory beside the sum."""
    total = torch.zeros((), dtype=torch.float64)
    for tensor, weight in zip(tensors, weights, strict=True):
        total = torch.add(total, tensor.double(), alpha=weight)
    return (total / math.fsum(weights)).float()


def slerp(first: Tensor, second: Tensor, t: float) -> Tensor:
    """The point `t` of the way from one tensor to the other on the arc between their directions; on the line where these are the same.

    The two parts have the lengths of their tensors, which is mergekit's convention: the directions alone decide the angle, which is taken
    in fp64: a length of 10 million numbers in fp32 has four right digits.
    """
    norms = (float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) for tensor in (first, second))
    lengths = [norm if norm > SHORTEST else 1.0 for norm in norms]
    cosine = float((first / lengths[0]).mul_(second / lengths[1]).sum(dtype=torch.float64))
    cosine = min(1.0, max(-1.0, cosine))
    if abs(cosine) > PARALLEL:
        return (1 - t) * first + t * second
    angle = math.acos(cosine)
    return math.sin((1 - t) * angle) / math.sin(angle) * first + math.sin(t * angle) / math.sin(angle) * second


def task_arithmetic(base: Tensor, tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """`base` and the weighted sum of the differences from it (arXiv:2212.04089)."""
    return base + weighted_differences(base, tensors, weights).sum(dim=0)


def ties(base: Tensor, tensors: Sequence[Tensor], weights: Sequence[float], density: float) -> Tensor:
    """The same, of the largest differences alone, and of these at each place those with the sign of their sum (arXiv:2306.01708).

    As mergekit has it, the sum that elects the sign is the weighted one, a sum of 0 elects +, and what agrees is divided by its weights.
    density: the share of a tensor's differences that counts, at least one.
    """
    differences = weighted_differences(base, tensors, weights, density)
    elected = torch.where(differences.sum(dim=0) >= 0, 1.0, -1.0)
    agrees = differences.sign() == elected
    divisor = (_column(weights, differences) * agrees).sum(dim=0)
    divisor[divisor == 0] = 1
    return base + (differences * agrees).sum(dim=0) / divisor


def weighted_differences(
    base: Tensor, tensors: Sequence[Tensor], weights: Sequence[float], density: float = 1.0
) -> Tensor:
    """The differences from `base`, each times its weight: fp32 [number of tensors, *shape]. density: as in `ties`."""
    differences = base.new_empty((len(tensors), *base.shape))
    for difference, tensor in zip(differences, tensors, strict=True):
        torch.sub(tensor, base, out=difference)
        if density < 1 and difference.numel():
            keep_largest(difference, density)
    return differences.mul_(_column(weights, differences))


def keep_largest(tensor: Tensor, share: float) -> None:
    """Make all but a share of the numbers of a tensor zero, its smallest; of equal ones those that come first stay."""
    order = tensor.abs().reshape(-1).argsort(descending=True, stable=True)
    tensor.view(-1)[order[max(1, int(share * tensor.numel())) :]] = 0


def checkpoint_weights(
    weighting: Literal["uniform", "sqrt", "cosine", "ema"], number: int, ema_decay: float
) -> list[float]:
    """The weights of so many checkpoints of a training, the oldest first; their sum is 1.

    A learning rate that is w(j) of its peak after checkpoint j is, for updates that are what they were at the peak, a mean in which
    checkpoint j weighs w(j) − w(j + 1): WSM, arXiv:2507.17634. Here w falls from 1 at the oldest to 0 after the last.
    """
    if weighting == "uniform":
        return [1 / number] * number
    if weighting == "ema":
        return [
            ema_decay ** (number - 1),
            *((1 - ema_decay) * ema_decay ** (number - 1 - at) for at in range(1, number)),
        ]
    shares = [at / number for at in range(number + 1)]
    rates = [1 - math.sqrt(at) if weighting == "sqrt" else (1 + math.cos(math.pi * at)) / 2 for at in shares]
    return [before - after for before, after in pairwise(rates)]


def _column(weights: Sequence[float], tensors: Tensor) -> Tensor:
    """Weights in a form that multiplies the tensors that are stacked in `tensors`."""
    return torch.tensor(weights, dtype=tensors.dtype).reshape(-1, *[1] * (tensors.dim() - 1))
