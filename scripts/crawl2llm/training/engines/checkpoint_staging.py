"""What a process of the engine torch writes of a checkpoint, copied to memory, so that it can be written while training goes on.

The plan, who writes which tensor, is that of torch.distributed.checkpoint (DefaultSavePlanner), made once: the files are the same as
those of its `save`. Its `async_save` makes the plan again each time by collective calls in a thread of its own, which need a second
process group; here the thread makes none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex

from crawl2llm.training.engines.model_parallel import local_part
from crawl2llm.training.engines.stream_writer import StreamWriter


class StagingPlanner(DefaultSavePlanner):
    """Plans by the tensors of a state, and has copies of them written."""

    copies: dict[str, torch.Tensor]

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The copy of this process's part of a tensor."""
        return self.copies[index.fqn]


class StagedState:
    """This process's part of a state in memory of the CPU, page-locked where the state is a GPU's. Built by all processes together."""

    def __init__(self, state: Mapping[str, torch.Tensor]) -> None:
        rank, writer = dist.get_rank(), StreamWriter("")
        self.planner = StagingPlanner()
        self.planner.set_up_planner(dict(state), writer.storage_meta(), rank == 0)
        plans: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(plans, self.planner.create_local_plan())
        box: list[Any] = [None]
        if rank == 0:
            box[0] = writer.prepare_global_plan(self.planner.create_global_plan(plans)[0])
        dist.broadcast_object_list(box)
        self.plan = self.planner.finish_plan(box[0][rank])
        self.planner.copies = {
            name: torch.empty(part.shape, dtype=part.dtype, pin_memory=part.is_cuda)
            for name in dict.fromkeys(item.index.fqn for item in self.plan.items)
            for part in [local_part(state[name])]
        }

    def copy_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copy the state as it is now; the one before must be written. After the return the state may change."""
        cuda = False
        for name, copy in self.planner.copies.items():
            part = local_part(state[name])
            copy.copy_(part, non_blocking=True)
            cuda = cuda or part.is_cuda
        if cuda:
            torch.cuda.synchronize()

    def write(self, folder: Path) -> list[str]:
        """Write the copy into a folder, onto the disk (fsync); the names of the files. No collective call: for a thread of its own."""
        result_future = StreamWriter(folder).write_data(self.plan, self.planner)
        result_future.wait()
        return sorted({result.storage_data for result in result_future.value()})
