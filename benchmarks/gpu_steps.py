"""Steps of our trainer on one GPU under several settings: seconds, MFU, peak memory beside the estimate, waits of the host, and kernels.

    python -m benchmarks.gpu_steps                       # a Llama of 1B, three minutes on an H100; writes benchmarks/results/gpu_steps.json
    python -m benchmarks.gpu_steps --size 125M --micro-batch 32 --only bf16 compiled

It needs torch, transformers and DeepSpeed, and no network: weights are drawn on the GPU, and tokens are random. All settings run in one
process, one after the other, DeepSpeed's last: what its engine leaves in memory is counted to nobody else. A step's time is the median of
`--steps`, each read to its end; memory is the peak of what torch's allocator gave to tensors in these steps, without CUDA's own. Waits are
counted by torch.cuda.set_sync_debug_mode. MFU is by 989.4 TFLOP/s (H100 SXM) unless `--peak` says otherwise. Without a GPU a tiny model
shows that this runs, and no memory, waits or kernels.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import completed, stand_in
from benchmarks.gpu_training import PACKAGES, gpus
from benchmarks.machine import processor, versions
from crawl2llm.commands.gpu_check.models import SIZES, draw_weights, llama_config
from crawl2llm.commands.gpu_check.steps import count_waits
from crawl2llm.core.root import ROOT

if TYPE_CHECKING:
    from crawl2llm.training.pretraining_settings import TrainSettings

RESULT = ROOT / "benchmarks/results/gpu_steps.json"
VOCABULARY, CONTEXT, WARMUP = 32_768, 2048, 3
COMPILED = {"precision": "bf16", "compile_layers": True, "loss_chunk": 4096}
RECOMPUTED = {"activation_checkpointing": True}
DEEPSPEED = {"engine": "deepspeed", "zero_stage": 1}
CASES: dict[str, dict[str, Any]] = {
    "bf16": {"precision": "bf16"},
    "bf16, stage 1": {"precision": "bf16", "zero_stage": 1},
    "bf16, stage 1, recomputed": {"precision": "bf16", "zero_stage": 1, **RECOMPUTED},
    "compiled": COMPILED,
    "compiled, stage 1": {**COMPILED, "zero_stage": 1},
    "compiled, stage 3": {**COMPILED, "zero_stage": 3},
    "compiled, stage 1, selective": {**COMPILED, "zero_stage": 1, **RECOMPUTED, "selective_checkpointing": True},
    "compiled, stage 1, muon in fp32": {**COMPILED, "zero_stage": 1, "optimizer": "muon"},
    "compiled, stage 1, muon in bf16": {**COMPILED, "zero_stage": 1, "optimizer": "muon", "muon_precision": "bf16"},
    "deepspeed": {"precision": "bf16", **DEEPSPEED},
    "deepspeed, compiled": {**COMPILED, **DEEPSPEED},
}


def longest_kernels(step: Callable[[], Any], number: int = 12) -> list[dict[str, Any]]:
    """The kernels that take most of step(): name, calls, milliseconds."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    rows = [row for row in profile.key_averages() if row.device_type == torch.autograd.DeviceType.CUDA]
    rows.sort(key=lambda row: -row.device_time_total)
    return [
        {"kernel": row.key[:120], "calls": row.count, "milliseconds": round(row.device_time_total / 1000, 3)}
        for row in rows[:number]
    ]


def estimate(config: Any, train: TrainSettings, micro_batch: int, parameters: int) -> dict[str, int]:
    """What training says that a process takes on a GPU, in bytes by part, without CUDA's own."""
    from crawl2llm.training import initial, memory, model
    from crawl2llm.training.engine_settings import EngineSettings

    settings = EngineSettings.of_pretraining(train)

    by_muon = [
        group["params"]
        for group in model.parameter_groups(initial.empty_model(config), settings)
        if "momentum" in group
    ]
    matrices = sum(value.numel() for values in by_muon for value in values)
    shape = replace(memory.shape_of_config(config, parameters, config.max_position_embeddings), matrices=matrices)
    placement = memory.Placement(
        processes=1,
        largest=micro_batch,
        micro_batch=micro_batch,
        activation_checkpointing=train.activation_checkpointing,
        selective_checkpointing=train.selective_checkpointing,
    )
    parts = memory.memory_parts(shape, settings, placement, cuda=True)
    return {name: size for name, size in parts.items() if name != "program"}


def measure(
    config: Any, device: Any, micro_batch: int, changes: dict[str, Any], steps: int, peak: float
) -> dict[str, Any]:
    """One row: a model trained under the settings `changes` of pretrain.train."""
    import torch

    stand_in()
    from crawl2llm.training import engine, initial, measures
    from crawl2llm.training.engine_settings import EngineSettings
    from crawl2llm.training.engines.by_name import ENGINES

    torch._dynamo.reset()  # compiled code holds the model of the row before
    gc.collect()
    torch.cuda.empty_cache()
    context = config.max_position_embeddings
    settings = completed({"engine": "torch", "zero_stage": 0, "learning_rate": 3e-4} | changes)
    job = engine.Job(
        config=config, settings=EngineSettings.of_pretraining(settings), device=device, micro_batch=micro_batch, accumulation=1,
        recomputed=settings.activation_checkpointing, selective=settings.selective_checkpointing,
        values=lambda: draw_weights(config, device),
    )  # fmt: skip
    began = time.perf_counter()
    trainer = ENGINES[settings.engine](job)
    tokens = torch.randint(0, config.vocab_size, (1, micro_batch, context + 1), device=device)

    def step() -> float:
        return float(trainer.step(tokens, 3e-4).loss)

    step()
    first = time.perf_counter() - began
    for _ in range(WARMUP):
        step()
    on_gpu, seconds = device.type == "cuda", []
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    allocated = torch.cuda.max_memory_allocated() if on_gpu else None
    parameters = sum(value.numel() for value in initial.empty_model(config).parameters())
    rate = micro_batch * context / statistics.median(seconds)
    flops = measures.flops_per_token(parameters, config.num_hidden_layers, config.hidden_size, context)
    parts = estimate(config, settings, micro_batch, parameters)
    return {
        "settings": changes, "parameters": parameters, "micro_batch": micro_batch, "first_step_seconds": round(first, 2),
        "step_seconds": round(statistics.median(seconds), 4), "tokens_per_second": round(rate),
        "mfu": round(rate * flops / peak, 4) if on_gpu else None,
        "allocated_bytes": allocated, "estimated_bytes": sum(parts.values()), "estimate": parts,
        "waits": count_waits(lambda: trainer.step(tokens, 3e-4)) if on_gpu else None,
        "kernels": longest_kernels(step) if on_gpu else [],
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="1B")
    parser.add_argument("--micro-batch", type=int, default=8, help="sequences of 2,048 tokens at once (default: 8)")
    parser.add_argument(
        "--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=f"of: {'; '.join(CASES)}"
    )
    parser.add_argument("--steps", type=int, default=8, help="steps by the clock (default: 8)")
    parser.add_argument("--peak", type=float, default=989.4e12, help="dense bf16 FLOP/s of the GPU (default: H100 SXM)")
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    args = parser.parse_args(argv)
    import torch

    from crawl2llm.training.group import join_group
    from crawl2llm.training.processes import environments, free_port

    gpu, vocabulary, context, micro_batch = gpus(), VOCABULARY, CONTEXT, args.micro_batch
    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    if not gpu:
        print("No GPU is here: a tiny model on the CPU shows that this runs, and nothing of its speed.", flush=True)
        args.size, vocabulary, context, micro_batch = "tiny", 512, 64, 2
    os.environ.update(*environments(0, 1, 1, "127.0.0.1", free_port()))
    join_group(device, 1)
    rows: dict[str, Any] = {}
    print("| settings | tokens/s | MFU | allocated, GiB | estimated | waits |\n|---|---|---|---|---|---|")
    for name in args.only:
        config = llama_config(args.size, vocabulary, context)
        row = rows[name] = measure(config, device, micro_batch, CASES[name], args.steps, args.peak)
        used, allocated = (f"{row['mfu']:.1%}", f"{row['allocated_bytes'] / 2**30:.2f}") if gpu else ("–", "–")
        shown = [
            f"{row['tokens_per_second']:,}",
            used,
            allocated,
            f"{row['estimated_bytes'] / 2**30:.2f}",
            str(row["waits"]),
        ]
        print(f"| {' | '.join([name, *shown])} |", flush=True)
        machine = {"gpu": gpu, "processor": processor(), "versions": versions(*PACKAGES)}
        body = {"machine": machine, "size": args.size, "context": context, "peak": args.peak, "rows": rows}
        args.out.write_text(json.dumps(body, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
