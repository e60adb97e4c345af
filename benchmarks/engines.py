"""Every engine of pretrain.train under every ZeRO stage, precision and number of processes that run here: loss, memory, speed.

    python -m benchmarks.engines                      # writes benchmarks/results/engines.json, prints docs/engines.md's rows and the speed

A Llama of 2.6 million parameters trains on synthetic tokens, 2,048 a step in micro-batches of 4 × 256, with AdamW; on the same data,
weights and threads (2, shared by the processes) everywhere. Each case is a process group of its own. Loss: of the last step. Memory:
what a process takes at its peak beyond what it had before the model was built, the largest of a group. Speed: of the fastest step, since
other work on the machine only ever slows one down; tokens by seconds of the clock, and by CPU seconds of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.machine import group_of, processor, versions
from benchmarks.walk import walk
from crawl2llm.core.root import ROOT
from crawl2llm.training.processes import environments, free_port

RESULT = ROOT / "benchmarks/results/engines.json"
VOCABULARY, CONTEXT, SEQUENCES, MICRO = 4096, 256, 8, 4
SHAPE = {
    "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 6,
    "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip


def cases() -> list[tuple[str, int, str, int]]:
    """(engine, ZeRO stage, precision, processes): every stage in fp32, the first and the last in bf16 with two processes."""
    kinds = [*product((1, 2), range(4), ("fp32",)), (2, 0, "bf16"), (2, 3, "bf16")]
    return [
        (name, stage, precision, processes) for processes, stage, precision in kinds for name in ("deepspeed", "torch")
    ]


def batch(step: int) -> Any:
    """The global batch of a step, int64 [sequences, context + 1]."""
    return walk((SEQUENCES, CONTEXT + 1), VOCABULARY, step)


def worker(name: str, stage: int, precision: str, steps: int) -> None:
    """One process of a case; process 0 prints the result."""
    import torch
    import torch.distributed as dist
    from transformers import AutoConfig

    from crawl2llm.training import engine, group, initial, model
    from crawl2llm.training.engine_settings import EngineSettings
    from crawl2llm.training.engines.by_name import ENGINES
    from crawl2llm.training.pretraining_settings import TrainSettings

    world, rank, device = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]), torch.device("cpu")
    group.join_group(device, max(1, 2 // world))
    shape = AutoConfig.for_model("llama", **SHAPE)
    keys = {"learning_rate": 0.001, "zero_stage": stage, "precision": precision}
    settings = EngineSettings.of_pretraining(TrainSettings.model_validate(keys))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    accumulation = SEQUENCES // MICRO // world
    job = engine.Job(
        config=shape,
        settings=settings,
        device=device,
        micro_batch=MICRO,
        accumulation=accumulation,
        recomputed=False,
        values=partial(initial.random_weights, shape, 0),
    )
    built = ENGINES[name](job)
    spent = []
    for step in range(1, steps + 1):
        mine = batch(step).reshape(accumulation, world, MICRO, -1)[:, rank]
        dist.barrier()
        clock, cpu = time.perf_counter(), time.process_time()
        loss = built.step(mine, 0.001).loss / world
        spent.append([time.perf_counter() - clock, time.process_time() - cpu])
    times = torch.tensor(spent, dtype=torch.float64)
    dist.all_reduce(times)  # the clock's: the mean of the processes
    memory = torch.tensor([(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024])
    dist.all_reduce(loss)
    dist.all_reduce(memory, dist.ReduceOp.MAX)
    tokens, (seconds, used) = SEQUENCES * CONTEXT, times.amin(0).tolist()
    if rank == 0:
        found = {"loss": float(loss), "memory_mb": int(memory) / 1e6, "tokens_per_second": tokens * world / seconds}
        found |= {"tokens_per_cpu_second": tokens / used, "parameters": model.count_parameters(shape)}
        print(json.dumps(found), flush=True)
    dist.barrier()
    os._exit(0)


def measured(case: tuple[str, int, str, int], steps: int) -> dict[str, Any]:
    """Run one case as a process group; RuntimeError where it fails."""
    name, stage, precision, processes = case
    command = [
        sys.executable,
        "-m",
        "benchmarks.engines",
        "--worker",
        f"{name},{stage},{precision}",
        "--steps",
        str(steps),
    ]
    found = group_of(command, environments(0, 1, processes, "127.0.0.1", free_port()))
    return {"engine": name, "zero_stage": stage, "precision": precision, "processes": processes, **found}


def row(found: dict[str, Any]) -> str:
    """A line of the table in docs/engines.md, with speed, which a busy machine makes worthless."""
    return (
        f"| {found['engine']} | {found['zero_stage']} | {found['precision']} | {found['processes']} | {found['loss']:.4f} | "
        f"{found['memory_mb']:.0f} | {found['tokens_per_second']:,.0f} | {found['tokens_per_cpu_second']:,.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6, help="steps of each case (default: 6)")
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, stage, precision = args.worker.split(",")
        worker(name, int(stage), precision, args.steps)
    rows = []
    for case in cases():
        rows.append(measured(case, args.steps))
        print(row(rows[-1]), flush=True)
    machine = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": versions("torch", "deepspeed", "transformers"),
    }
    body = {"machine": machine, "steps": args.steps, "tokens_per_step": SEQUENCES * CONTEXT, "cases": rows}
    args.out.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
