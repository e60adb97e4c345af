"""What a step trains on: windows of which every token counts, or inputs and targets of which some count."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

IGNORE = -100  # a target that does not count
# This process's micro-batches of a step. Windows, int64 [micro-batches, n, context + 1], of which every token counts; or (inputs, targets),
# int64 [n, length] each, of which the targets that are not IGNORE count, and where rows hold several texts the position of each token in
# its own. All processes have as many.
MicroBatch = tuple[torch.Tensor, ...]
Batch = torch.Tensor | Sequence[MicroBatch]


def micro_batches(batch: Batch) -> tuple[Sequence[MicroBatch], torch.Tensor | None, torch.Tensor | None]:
    """(inputs, targets and perhaps positions of each micro-batch; None and None for windows, of which every token counts).

    Of targets that count in part these are the number by which the sum of a micro-batch's losses becomes its share of the step's mean, and
    the one by which a mean over a micro-batch becomes its share of the mean over those that have a target: engines take the mean over
    micro-batches and over processes. A collective call then.
    """
    if isinstance(batch, torch.Tensor):
        return [(tokens[:, :-1], tokens[:, 1:]) for tokens in batch], None, None
    targets = torch.stack([(targets != IGNORE).sum() for _, targets, *_ in batch])
    counted = torch.stack([targets.sum(), (targets > 0).sum()])
    dist.all_reduce(counted)
    shares = len(batch) * dist.get_world_size() / counted.clamp(min=1)
    return batch, shares[0], shares[1]


def pin_for(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor on the CPU, page-locked if it is for a GPU: its copy there then goes on while the program does."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


def read_mask(targets: torch.Tensor) -> torch.Tensor:
    """Which inputs are of a text, and not padding behind it: bool [n, length]. targets: int64 [n, length], those of a text end with one
    that counts.
    """
    return (targets != IGNORE).flip(1).cumsum(1).flip(1) > 0
