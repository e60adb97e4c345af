"""Takes a step of ZeRO 1 with the whole model on the meta device; one process of a group. A GPU would wait as often as it is asked here.

On the meta device there are no values: what needs one, and what lies on the CPU beside it, raises. Questions for values are counted and
answered with 1. FSDP knows no handle of that device, and gets the CPU's, which has no streams; a collective call moves
nothing. Each process writes meta-RANK.json into the folder that it is given: the questions and the collective calls of each case.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import masking_utils

from crawl2llm.training import group, loop, masking
from crawl2llm.training.engines.torch import Torch
from crawl2llm.training.run_state import RunState
from tests.unit.stages.pretrain.test_on_gpus import CONTEXT, built

CASES: dict[str, dict[str, Any]] = {
    "adamw": {},
    "muon": {"optimizer": "muon"},
    "muon bf16": {"optimizer": "muon", "muon_precision": "bf16"},
    "documents": {"document_masking": True},
}


class Handle:
    """What FSDP asks of a device's module, as of the CPU's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def current_device(self) -> int:
        return 0


class Asked(TorchDispatchMode):
    """Notes questions for a value and collective calls."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.calls = 0, list[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            self.values += 1
            return 1.0
        if function is torch.ops.aten._to_copy.default and args[0].is_meta and str(kwargs.get("device")) == "cpu":
            self.values += 1
            return torch.ones(args[0].shape, dtype=args[0].dtype)
        if function.namespace in ("c10d", "_c10d_functional"):
            self.calls.append(function.name())
        return function(*args, **(kwargs or {}))


class Waits(Torch):
    """As it would be if each gradient's norm were asked for before the update."""

    def _update(self, fits: Any) -> Any:
        for parameter in self.model.parameters():
            assert isinstance(parameter.grad, DTensor)
            float(parameter.grad.to_local().norm())
        return super()._update(fits)


def case(made: type[Torch], changes: dict[str, Any], shares: bool = True) -> dict[str, Any]:
    engine = built("llama", "meta", made, zero_stage=1, **changes)
    parameters = list(engine.model.parameters())
    assert all(isinstance(parameter, DTensor) and parameter.is_meta for parameter in parameters)
    tokens = torch.zeros(2, 2, CONTEXT + 1, dtype=torch.int64, device="meta")
    state, meta = RunState(), torch.device("meta")
    with Asked() as asked:
        state.update = engine.step(
            tokens, 0.01, reduce=partial(loop.all_reduce_loss, state, meta, 2) if shares else None
        )
        loop.reduce_loss(state, meta, 2)
    return {"values": asked.values, "calls": asked.calls, "parameters": len(parameters)}


def main() -> None:
    group.join_group(torch.device("cpu"), 1)
    FSDPParamGroup._validate_no_meta_params = lambda _: None  # type: ignore[method-assign]
    torch.meta = Handle()  # type: ignore[attr-defined]
    torch.autocast = lambda *_, **__: contextlib.nullcontext()  # type: ignore[assignment,misc]
    found = {name: case(Torch, changes) for name, changes in CASES.items()}
    found["gradients asked for"] = case(Waits, {})
    found["loss asked for"] = case(Torch, {}, shares=False)
    masking.document_numbers = masking_utils.find_packed_sequence_indices  # type: ignore[assignment]  # as it was
    found["documents asked for"] = case(Torch, CASES["documents"])
    (Path(sys.argv[1]) / f"meta-{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
