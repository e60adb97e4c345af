"""Trains 20 steps in bf16 and in emulated eight bits, under DDP and FSDP2, and with recomputation; one process of a group.

Process 0 writes eight_bits.json into the folder that it is given: the losses of each case, and types and sizes of what a checkpoint holds.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.training import engine, group, initial
from crawl2llm.training.engines.torch import Torch
from crawl2llm.training.muon import local_part
from tests.unit.stages.pretrain.side_by_side import CPU, settings, shape

STEPS, CONTEXT, RATE = 20, 24, 3e-3
CASES: dict[str, dict[str, Any]] = {
    "bf16": {"precision": "bf16", "autocast": False},
    "fp8, DDP": {"precision": "fp8"},
    "fp8, copies of weights": {"precision": "fp8", "autocast": False, "steps": 4},
    "fp8, FSDP2, recomputed": {"precision": "fp8", "zero_stage": 3, "recomputed": True, "selective": True},
}


def train(
    zero_stage: int = 0, recomputed: bool = False, selective: bool = False, steps: int = STEPS, **changes: Any
) -> dict[str, Any]:
    """(losses over all processes, {key of a checkpoint: type and sizes}) of a training on sequences that can be learned."""
    config = shape()
    config.max_position_embeddings = CONTEXT  # of a micro-batch 24 tokens, which 16 does not divide
    built = Torch(
        engine.Job(
            config=config, settings=settings(zero_stage=zero_stage, engine="torch", **changes), device=CPU, micro_batch=1,
            accumulation=1, recomputed=recomputed, selective=selective, values=partial(initial.random_weights, config, 7),
        )
    )  # fmt: skip
    losses = []
    for step in range(steps):
        first = 2 * step + dist.get_rank()
        tokens = (first + 3 * torch.arange(CONTEXT + 1)).remainder(101)[None, None]
        loss = built.step(tokens, RATE).loss / dist.get_world_size()
        dist.all_reduce(loss)
        losses.append(float(loss))
    state = {key: local_part(value) for key, value in built._checkpoint_state().items()}
    assert {type(value) for value in state.values()} <= {torch.Tensor, torch.nn.Parameter}
    return {"losses": losses, "state": {key: str(value.dtype) for key, value in state.items()}}


def main() -> None:
    group.join_group(CPU, 1)
    found = {name: train(**changes) for name, changes in CASES.items()}
    if dist.get_rank() == 0:
        (Path(sys.argv[1]) / "eight_bits.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
