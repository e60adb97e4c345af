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


def micro_batches(batch: Batch) -> tuple[Sequence[MicroBatch], torch.Tensor | None]:
    """(inputs, targets and perhaps positions of each micro-batch; None for windows, whose losses are means over as many tokens each).

    Of targets that count in part it is the number by which the sum of a micro-batch's losses becomes its share of the step's mean, where
    engines take the mean over micro-batches and over processes. A collective call then.
    """
    if isinstance(batch, torch.Tensor):
        return [(tokens[:, :-1], tokens[:, 1:]) for tokens in batch], None
    counted = torch.stack([(targets != IGNORE).sum() for _, targets, *_ in batch]).sum()
    dist.all_reduce(counted)
    return batch, len(batch) * dist.get_world_size() / counted.clamp(min=1)
