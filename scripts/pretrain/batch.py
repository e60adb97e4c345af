"""What a step trains on: windows of which every token counts, or inputs and targets of which some count."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

IGNORE = -100  # a target that does not count
# This process's micro-batches of a step. Windows, int64 [micro-batches, n, context + 1], of which every token counts; or (inputs, targets),
# int64 [n, length] each, of which the targets that are not IGNORE count. All processes have as many.
Batch = torch.Tensor | Sequence[tuple[torch.Tensor, torch.Tensor]]


def micro_batches(batch: Batch) -> tuple[Sequence[tuple[torch.Tensor, torch.Tensor]], torch.Tensor | None]:
    """(inputs and targets of each micro-batch; None for windows, whose losses are means over as many tokens each).

    Of targets that count in part it is the number by which the sum of a micro-batch's losses becomes its share of the step's mean, where
    engines take the mean over micro-batches and over processes. A collective call then.
    """
    if isinstance(batch, torch.Tensor):
        return [(tokens[:, :-1], tokens[:, 1:]) for tokens in batch], None
    counted = torch.stack([(targets != IGNORE).sum() for _, targets in batch]).sum()
    dist.all_reduce(counted)
    return batch, len(batch) * dist.get_world_size() / counted.clamp(min=1)
