"""Takes steps in bf16 under each ZeRO stage with each reduce_dtype, and writes what processes added up together, by type, and the losses.

One process of a group; process 0 writes reduced.json into the folder that it is given.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.training import group
from tests.unit.stages.pretrain.side_by_side import made, settings, train

SUMS = (
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "all_to_all",
    "_reduce_scatter_base",
)
seen: Counter[str] = Counter()


def spy(function: Any, *args: Any, **more: Any) -> Any:
    """Count the elements of a sum by their type."""
    for one in (*args, *more.values()):
        for tensor in one if isinstance(one, list) else [one]:
            if isinstance(tensor, torch.Tensor):
                seen[str(tensor.dtype)] += tensor.numel()
    return function(*args, **more)


def main() -> None:
    group.join_group(torch.device("cpu"), 1)
    for name in SUMS:
        if hasattr(dist, name):
            setattr(dist, name, partial(spy, getattr(dist, name)))
    found = {}
    for stage in range(4):
        for kind in ("auto", "fp32"):
            wanted = settings(zero_stage=stage, precision="bf16") | {"reduce_dtype": kind}
            built = made("deepspeed", wanted)
            seen.clear()
            found[f"{stage}-{kind}"] = {"losses": train(built, wanted, range(1, 5)), "seen": dict(seen)}
    if os.environ["RANK"] == "0":
        (Path(sys.argv[1]) / "reduced.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
