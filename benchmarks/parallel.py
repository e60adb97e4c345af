"""Every placement of pretrain.train.parallel that runs here, against a single process: the loss, and how far it is from that.

    python -m benchmarks.parallel                     # writes benchmarks/results/parallel.json, prints the table of docs/engines.md

A Llama of 0.5 million parameters (for experts a Mixtral with four of them) trains with the engine torch in fp32 on synthetic tokens,
2,048 a step in micro-batches of 4 × 128 over all processes, with AdamW, on the same data and weights everywhere. Each case is a process
group of its own, of gloo processes with one thread each. Difference: the largest of all steps' losses, and of the gradient's norms before
clipping as a share of the norm, from those of one process. Held: elements of the parameters in process 0, as a share of the model's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import group_of, processor, versions
from benchmarks.walk import walk
from crawl2llm.core.root import ROOT
from crawl2llm.training.parallel import Degrees, Place
from crawl2llm.training.processes import environments, free_port

RESULT = ROOT / "benchmarks/results/parallel.json"
VOCABULARY, CONTEXT, SEQUENCES, BATCH = 1024, 128, 16, 4  # BATCH: micro-batches of a step
SHAPE = {
    "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
    "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
# Routers' own loss depends on how tokens are dealt to processes: without it, processes train what one does.
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.0}
CASES: list[tuple[str, int, int, dict[str, int]]] = [  # (type, processes, ZeRO stage, degrees)
    ("llama", 1, 0, {}),
    ("llama", 2, 0, {}),
    ("llama", 2, 0, {"tensor": 2}),
    ("llama", 4, 0, {"tensor": 2}),
    ("llama", 4, 3, {"tensor": 2}),
    ("llama", 2, 0, {"sequence": 2}),
    ("llama", 4, 2, {"sequence": 2}),
    ("llama", 2, 0, {"pipeline": 2}),
    ("llama", 4, 0, {"pipeline": 2}),
    ("llama", 4, 1, {"pipeline": 2}),
    ("llama", 4, 0, {"pipeline": 4}),
    ("llama", 4, 0, {"tensor": 2, "pipeline": 2}),
    ("llama", 4, 0, {"tensor": 2, "sequence": 2}),
    ("llama", 4, 0, {"pipeline": 2, "sequence": 2}),
    ("mixtral", 1, 0, {}),
    ("mixtral", 2, 0, {"expert": 2}),
    ("mixtral", 4, 0, {"expert": 2}),
    ("mixtral", 4, 0, {"tensor": 2, "expert": 2}),
]


def batch(step: int) -> Any:
    """The global batch of a step, int64 [micro-batches, sequences, context + 1]."""
    return walk((BATCH, SEQUENCES // BATCH, CONTEXT + 1), VOCABULARY, step)


def worker(kind: str, stage: int, degrees: Degrees, steps: int) -> None:
    """One process of a case; process 0 prints the result."""
    import torch
    import torch.distributed as dist
    from transformers import AutoConfig

    from crawl2llm.training import engine, group, initial, parallel
    from crawl2llm.training.engine_settings import EngineSettings
    from crawl2llm.training.engines.by_name import ENGINES
    from crawl2llm.training.pretraining_settings import TrainSettings

    place, device = Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), degrees), torch.device("cpu")
    group.join_group(device, 1)
    shape = AutoConfig.for_model(kind, **SHAPE, **(EXPERTS if kind == "mixtral" else {}))
    train = TrainSettings.model_validate({"engine": "torch", "zero_stage": stage, "learning_rate": 0.001})
    parallel.check_degrees(degrees, place.processes, train)
    parallel.check_model(degrees, shape, CONTEXT, BATCH)
    micro = SEQUENCES // BATCH // place.data_processes
    built = ENGINES["torch"](
        engine.Job(
            config=shape,
            settings=EngineSettings.of_pretraining(train),
            device=device,
            micro_batch=micro,
            accumulation=BATCH,
            recomputed=False,
            values=partial(initial.random_weights, shape, 0),
            parallel=degrees,
        )
    )
    held = sum(getattr(value, "_local_tensor", value).numel() for value in built.model.parameters())
    rows, begun = [], time.perf_counter()
    for step in range(1, steps + 1):
        found = built.step(batch(step).chunk(place.data_processes, dim=1)[place.data_rank], 0.001)
        loss = found.loss / place.processes
        dist.all_reduce(loss)
        rows.append([float(loss), found.norm])
    if place.rank == 0:
        whole = sum(value.numel() for value in initial.empty_model(shape).parameters())
        print(json.dumps({"steps": rows, "held": held / whole, "seconds": time.perf_counter() - begun}), flush=True)
    dist.barrier()
    os._exit(0)


def measured(case: tuple[str, int, int, dict[str, int]], steps: int) -> dict[str, Any]:
    """Run one case as a process group; RuntimeError where it fails."""
    kind, processes, stage, degrees = case
    command = [
        sys.executable, "-m", "benchmarks.parallel", "--steps", str(steps), "--worker", json.dumps([kind, stage, degrees]),
    ]  # fmt: skip
    found = group_of(command, environments(0, 1, processes, "127.0.0.1", free_port()))
    return {"type": kind, "processes": processes, "zero_stage": stage, "degrees": degrees, **found}


def compared(found: dict[str, Any], alone: dict[str, Any]) -> dict[str, Any]:
    """A case with its largest differences from one process."""
    pairs = list(zip(found["steps"], alone["steps"], strict=True))
    loss = max(abs(one[0] - other[0]) for one, other in pairs)
    norm = max(abs(one[1] - other[1]) / other[1] for one, other in pairs)
    return {**found, "loss": found["steps"][-1][0], "loss_difference": loss, "norm_difference": norm}


def row(found: dict[str, Any]) -> str:
    """A line of the table in docs/engines.md."""
    degrees = Degrees(**found["degrees"])
    data = found["processes"] // degrees.replica_size
    return (
        f"| {found['type']} | {found['processes']} | {data} | {degrees or '–'} | {found['zero_stage']} | {found['loss']:.6f} | "
        f"{found['loss_difference']:.1e} | {found['norm_difference']:.1e} | {found['held']:.0%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8, help="steps of each case (default: 8)")
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        kind, stage, degrees = json.loads(args.worker)
        worker(kind, stage, Degrees(**degrees), args.steps)
    rows: list[dict[str, Any]] = []
    for case in CASES:
        found = measured(case, args.steps)
        alone = next((one for one in rows if one["type"] == case[0]), found)  # the first of a type is one process
        rows.append(compared(found, alone))
        print(row(rows[-1]), flush=True)
    machine = {"processor": processor(), "cores": os.cpu_count(), "versions": versions("torch", "transformers")}
    body = {"machine": machine, "steps": args.steps, "tokens_per_step": SEQUENCES * CONTEXT, "cases": rows}
    args.out.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
