"""Takes clipped steps under FSDP, by one kernel for each gradient and by the foreach kernels of a GPU; one process of a group.

Process 0 writes foreach.json into the folder that it is given: norms, losses and a weight of each case, what the foreach kernels were
given, and the norm that comes of a part of the gradient alone, as it would without the sum over processes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad
from transformers import AutoConfig

from crawl2llm.training import engine, group, initial
from crawl2llm.training.engines.torch import Torch
from tests.unit.training.typed import engine_settings

SHAPE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip
USED: set[str] = set()


def watched(name: str) -> Any:
    kernel = getattr(torch, name)

    def called(tensors: Any, *args: Any, **more: Any) -> Any:
        USED.add(f"{name} {type(tensors[0]).__name__}")
        return kernel(tensors, *args, **more)

    return called


def case(zero: int, optimizer: str, foreach: bool) -> dict[str, Any]:
    clip_grad._has_foreach_support = lambda *_: foreach
    config = AutoConfig.for_model("llama", **SHAPE)
    wanted = {"engine": "torch", "zero_stage": zero, "precision": "fp32", "learning_rate": 0.01, "optimizer": optimizer}
    job = engine.Job(
        config=config, settings=engine_settings(**wanted, gradient_clipping=0.1), device=torch.device("cpu"),
        micro_batch=2, accumulation=2, recomputed=False, values=lambda: initial.random_weights(config, 1),
    )  # fmt: skip
    made = Torch(job)
    parts: list[float] = []
    total = nn.utils.get_total_norm

    def of_parts(gradients: Any) -> Any:
        own = sum(float(gradient.to_local().square().sum()) for gradient in gradients) ** 0.5
        parts.append(own)
        return total(gradients)

    nn.utils.get_total_norm = of_parts
    USED.clear()
    try:
        tokens = torch.randint(1, 64, (2, 2, 17), generator=torch.Generator().manual_seed(dist.get_rank()))
        updates = [made.step(tokens, 0.01) for _ in range(2)]
    finally:
        nn.utils.get_total_norm = total
    weights = {name: float(value.double().square().sum()) for name, value in made.master_weights()}
    return {
        "norms": [update.norm for update in updates], "losses": [float(update.loss) for update in updates],
        "weights": sum(weights.values()), "used": sorted(USED), "parts": parts,
    }  # fmt: skip


def main() -> None:
    group.join_group(torch.device("cpu"), 1)
    for name in ("_foreach_norm", "_foreach_mul_"):
        setattr(torch, name, watched(name))
    found = {
        f"{zero} {optimizer}": [case(zero, optimizer, foreach) for foreach in (False, True)]
        for zero in (1, 3)
        for optimizer in ("adamw", "muon")
    }
    if dist.get_rank() == 0:
        (Path(sys.argv[1]) / "foreach.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
