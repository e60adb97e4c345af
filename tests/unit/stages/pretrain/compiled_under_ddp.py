"""Takes steps of compiled layers under DDP, and writes how many graphs were compiled, by type of model.

One process of a group; process 0 writes graphs.json into the folder that it is given. Layers are larger than DDP's first bucket of 1 MB.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from transformers import AutoConfig

from crawl2llm.training import engine, group, initial, layers
from crawl2llm.training.engines.torch import Torch
from tests.unit.training.typed import engine_settings

graphs: list[Any] = []


def keep(graph: Any, _: Any) -> Any:
    """A compiler that runs a graph as it is."""
    graphs.append(graph)
    return make_boxed_func(graph.forward)


def main() -> None:
    group.join_group(torch.device("cpu"), 1)
    layers.BACKEND = aot_autograd(fw_compiler=keep, bw_compiler=keep)  # type: ignore[assignment]
    found = {}
    for kind in ("llama", "mixtral"):
        config = AutoConfig.for_model(
            kind, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=64, bos_token_id=0, eos_token_id=0, pad_token_id=None,
        )  # fmt: skip
        wanted = {
            "engine": "torch",
            "zero_stage": 0,
            "precision": "bf16",
            "learning_rate": 0.01,
            "compile_layers": True,
        }
        job = engine.Job(
            config=config,
            settings=engine_settings(**wanted),
            device=torch.device("cpu"),
            micro_batch=2,
            accumulation=2,
            recomputed=False,
            values=lambda config=config: initial.random_weights(config, 1),
        )
        torch._dynamo.reset()
        graphs.clear()
        Torch(job).step(torch.ones(2, 2, 17, dtype=torch.int64), 0.01)
        found[kind] = len(graphs)
    if os.environ["RANK"] == "0":
        (Path(sys.argv[1]) / "graphs.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
