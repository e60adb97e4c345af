"""Which weights of a linear layer are zeroed, by their size, and how they stay zero while the others train."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from crawl2llm.core.errors import InputError
from crawl2llm.stages.compress.settings import PruneSettings

MAGNITUDE, TWO_OF_FOUR = "magnitude", "2:4"
GROUP, KEPT_IN_GROUP = 4, 2  # of 2:4


def magnitude_mask(weight: torch.Tensor, sparsity: float) -> torch.Tensor:
    """Where a matrix keeps its weights, bool of its shape: all but the share `sparsity` that is smallest in size, ties by place.

    The share is of each matrix: a common threshold would empty whole layers (Han et al. 2015, arXiv:1506.02626, section 3.1).
    """
    order = weight.abs().flatten().sort(stable=True).indices
    mask = torch.ones(weight.numel(), dtype=torch.bool)
    mask[order[: round(sparsity * weight.numel())]] = False
    return mask.reshape(weight.shape)


def two_of_four(weight: torch.Tensor) -> torch.Tensor:
    """Where a matrix [outputs, inputs] keeps its weights, bool: the two largest in size of every four inputs next to each other.

    What sparse tensor cores multiply with (Mishra et al. 2021, arXiv:2104.08378, section 2). Inputs have to be a multiple of 4.
    """
    groups = weight.abs().reshape(-1, GROUP)
    best = groups.sort(descending=True, stable=True).indices[:, :KEPT_IN_GROUP]
    return torch.zeros(groups.shape, dtype=torch.bool).scatter_(1, best, True).reshape(weight.shape)


def weight_mask(weight: torch.Tensor, name: str, settings: PruneSettings) -> torch.Tensor:
    """The mask of a matrix [outputs, inputs] by `method` and `sparsity`. Raises InputError, with its name, where 2:4 does not fit."""
    if settings.method == MAGNITUDE:
        return magnitude_mask(weight, settings.sparsity)
    if weight.shape[1] % GROUP:
        raise InputError(
            f"compress.prune.method is '2:4', and {name} has {weight.shape[1]} inputs, no multiple of {GROUP}"
        )
    return two_of_four(weight)


def keep_zeros(model: torch.nn.Module, zeroed: Iterable[str]) -> None:
    """Keep what is zero of these parameters zero in a training by AdamW: their gradient is 0, so no momentum moves them, and decay cannot.

    The model has its weights, whole.
    """
    parameters = dict(model.named_parameters())
    for name in zeroed:
        mask = parameters[name].detach() != 0
        parameters[name].register_hook(lambda gradient, mask=mask: gradient * mask)
