"""Our trainer beside others on a GPU, in turn, in one run: tokens/s, MFU, peak memory, and on demand where the time goes.

    python -m benchmarks.gpu_training --size 125M --micro-batch 16 --nanogpt ../nanoGPT    # writes benchmarks/results/gpu_training.json
    python -m benchmarks.gpu_training --profile --only torch --set compile_layers=true

It needs torch, transformers and DeepSpeed, and no network: tokens are synthetic. Every contender trains a Llama of the same shape
(nanoGPT: GPT-2's layers of the same width and depth) with AdamW, bf16 on a GPU, in processes of its own, and contenders take turns
`--rounds` times, so that a GPU that grows warm slows all alike. A step's time is the median over blocks of steps, and over rounds.
Memory is the most that torch's allocator has reserved on the GPU of process 0; the loss is that of the last step on process 0.
torch and deepspeed: our trainer with that engine; plain: transformers in a loop as nanoGPT's; trainer: transformers' Trainer, where
accelerate is installed; nanogpt: a copy of its repository; torchtitan: a copy of its repository, started by torchrun with the same Llama
(crawl2llm/commands/gpu_check/titan.py), whose own log is read. Without a GPU it runs at a tiny size, says so, and shows no more than that
it works.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.contest import Plan, written
from benchmarks.machine import group_of, processor, versions
from crawl2llm.commands.gpu_check.models import SIZES
from crawl2llm.commands.gpu_check.titan import VARIABLE
from crawl2llm.core.root import ROOT
from crawl2llm.training import measures
from crawl2llm.training.processes import environments, free_port, malloc_variables

RESULT = ROOT / "benchmarks/results/gpu_training.json"
PACKAGES = ("torch", "transformers", "deepspeed", "accelerate", "triton", "flash-attn", "liger-kernel", "torchtitan")
# A line of torchtitan/components/metrics.py, MetricsProcessor.log; its memory is what torch has reserved at most.
TITAN = re.compile(r"memory:\s*([0-9.]+)GiB.*?tps:\s*([0-9,]+)")


def gpus() -> dict[str, Any] | None:
    """The GPUs of this machine, with their driver; None where torch sees none."""
    import torch

    if not torch.cuda.is_available():
        return None
    first = torch.cuda.get_device_properties(0)
    asked = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout
        said = answer.splitlines()[0].split(", ")
    except (OSError, subprocess.SubprocessError, IndexError):
        said = []
    return {
        "name": first.name, "number": torch.cuda.device_count(), "memory_bytes": first.total_memory, "cuda": torch.version.cuda,
        "driver": said[0] if said else None, "clock_limit": said[1] if said else None, "power_limit": said[2] if said else None,
    }  # fmt: skip


def side_by_side(name: str, plan: Plan, processes: int, kept: bool = False) -> dict[str, Any]:
    """One round of one contender; {"error": which process failed, and its last lines} where it fails.

    kept: start it as our launcher does, on a CPU too.
    """
    command = [sys.executable, "-m", "benchmarks.contenders", name, written(plan)]
    places = environments(0, 1, processes, "127.0.0.1", free_port())
    if not kept:
        places = [{key: value for key, value in place.items() if key not in malloc_variables()} for place in places]
    try:
        return group_of(command, places)
    except RuntimeError as error:
        return {"error": str(error)}


def titan(repository: Path, arguments: str, plan: Plan, processes: int) -> dict[str, Any]:
    """One round of torchtitan, by the steps after the warm-up in its log: its own tokens/s of a device and GiB reserved."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "torchtitan.train",
    ]  # fmt: skip
    command += ["--module", "crawl2llm.commands.gpu_check.titan", "--config", "same_llama", *arguments.split()]
    shape = [
        plan.hidden, plan.layers, plan.heads, plan.kv_heads, plan.intermediate, plan.vocabulary, plan.context, plan.micro_batch,
        plan.warmup + plan.steps,
    ]  # fmt: skip
    environment = os.environ | {VARIABLE: " ".join(map(str, shape))}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    return titan_said(done.stdout + done.stderr, plan)


def titan_said(log: str, plan: Plan) -> dict[str, Any]:
    """What a log of torchtitan says of the steps after the warm-up; {"error": its end} without them."""
    plainly = re.sub(r"\x1b\[[0-9;]*m", "", log)
    found = [(float(memory), int(rate.replace(",", ""))) for memory, rate in TITAN.findall(plainly)][plan.warmup :]
    if not found:
        return {"error": "\n".join(plainly.splitlines()[-12:])}
    rate = statistics.median(rate for _, rate in found)
    return {
        "seconds": plan.micro_batch * plan.context / rate,
        "memory_bytes": max(memory for memory, _ in found) * 2**30,
        "per_step": plan.micro_batch * plan.context,
    }


def summary(rounds: list[dict[str, Any]], plan: Plan, processes: int, gpu: str) -> dict[str, Any]:
    """One contender's rounds as medians: tokens/s of all processes, MFU, peak memory of process 0."""
    good = [one for one in rounds if "error" not in one]
    if not good:
        return {"error": rounds[-1]["error"]}
    last, seconds = good[-1], statistics.median(one["seconds"] for one in good)
    rate = last.get("per_step", plan.tokens) * processes / seconds
    found = {
        "tokens_per_second": round(rate, 1), "step_seconds": round(seconds, 6), "rounds": [round(one["seconds"], 6) for one in good],
        "peak_memory_gib": round(max(one["memory_bytes"] for one in good) / 2**30, 3), "mfu": None,
    }  # fmt: skip
    if "multiplied" in last:
        flops = measures.flops_per_token(last["multiplied"], plan.layers, plan.hidden, plan.context)
        used = measures.mfu(rate, flops, measures.peak_of(gpu, plan.precision), processes)
        found |= {
            "mfu": None if used is None else round(used, 4),
            "parameters": last["parameters"],
            "loss": round(last["loss"], 5),
        }
    return found | ({"kinds": last["kinds"]} if "kinds" in last else {})


def parsed(argv: list[str] | None) -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--size", choices=SIZES, help="shape of the model (default: 125M on a GPU, tiny on a CPU)")
    made.add_argument("--vocabulary", type=int, help="default: 32768 on a GPU, 512 on a CPU")
    made.add_argument("--context", type=int, help="tokens of a sequence (default: 2048, 64)")
    made.add_argument("--micro-batch", type=int, help="sequences at once (default: 8, 2)")
    made.add_argument("--accumulation", type=int, default=1, help="micro-batches of a step (default: 1)")
    made.add_argument("--processes", type=int, help="default: one for each GPU, one on a CPU")
    made.add_argument("--zero-stage", type=int, help="of our engines (default: 0 in one process, 1 in several)")
    made.add_argument("--precision", choices=("bf16", "fp32"), help="default: bf16 on a GPU, fp32 on a CPU")
    made.add_argument(
        "--compile",
        action="store_true",
        help="compile the models of the other contenders; ours: --set compile_layers=true",
    )
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of pretrain.train for our engines, as JSON",
    )
    made.add_argument("--only", nargs="+", help="these contenders alone")
    made.add_argument("--nanogpt", type=Path, help="a copy of github.com/karpathy/nanoGPT")
    made.add_argument("--torchtitan", type=Path, help="a copy of github.com/pytorch/torchtitan")
    made.add_argument("--torchtitan-arguments", default="", help="further options of its own command line")
    made.add_argument("--rounds", type=int, default=3, help="turns of each contender (default: 3)")
    made.add_argument("--warmup", type=int, default=10, help="steps before the clock (default: 10)")
    made.add_argument("--steps", type=int, default=30, help="steps by the clock, in blocks of 5 (default: 30)")
    made.add_argument(
        "--profile", action="store_true", help="say by kind of kernel where the time goes, over 5 further steps"
    )
    made.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    return made.parse_args(argv)


def planned(args: argparse.Namespace, size: str, processes: int, gpu: bool) -> Plan:
    """What the options say, with the defaults of a GPU or of a CPU."""
    hidden, layers, heads, kv_heads, intermediate = SIZES[size]
    return Plan(
        hidden=hidden, layers=layers, heads=heads, kv_heads=kv_heads, intermediate=intermediate,
        vocabulary=args.vocabulary or (32768 if gpu else 512),
        context=args.context or (2048 if gpu else 64),
        micro_batch=args.micro_batch or (8 if gpu else 2),
        accumulation=args.accumulation,
        precision=args.precision or ("bf16" if gpu else "fp32"),
        device="cuda" if gpu else "cpu",
        zero_stage=int(processes > 1) if args.zero_stage is None else args.zero_stage,
        compile=args.compile, nanogpt=str(args.nanogpt) if args.nanogpt else None,
        warmup=args.warmup, steps=args.steps, block=5, profile=args.profile,
        settings={key: json.loads(value) for key, value in (one.split("=", 1) for one in args.set)},
        threads=1 if gpu else max(1, (os.cpu_count() or 1) // processes),
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    args, gpu = parsed(argv), gpus()
    if gpu is None:
        print("No GPU is here: a tiny model on the CPU shows that this runs, and nothing of its speed.", flush=True)
    processes = args.processes or (gpu["number"] if gpu else 1)
    size = args.size or ("125M" if gpu else "tiny")
    plan = planned(args, size, processes, bool(gpu))
    names = ["torch", "deepspeed", "plain", *(["trainer"] if importlib.util.find_spec("accelerate") else [])]
    names += [name for name in ("nanogpt", "torchtitan") if getattr(args, name)]
    if args.only:
        if unknown := sorted(set(args.only) - set(names)):
            raise SystemExit(
                f"--only {' '.join(unknown)}: not among {', '.join(names)} (a path or a package may be missing)"
            )
        names = args.only
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(args.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            if name == "torchtitan":
                rounds[name].append(titan(args.torchtitan, args.torchtitan_arguments, plan, processes))
            else:
                rounds[name].append(side_by_side(name, plan, processes))
    product = gpu["name"] if gpu else ""
    found = {name: summary(each, plan, processes, product) for name, each in rounds.items()}
    print("| contender | tokens/s | MFU | peak memory of process 0, GiB | loss |\n|---|---|---|---|---|")
    for name, one in found.items():
        if "error" in one:
            print(f"| {name} | failed: {one['error'].splitlines()[-1] if one['error'] else ''} | | | |")
            continue
        used = "–" if one["mfu"] is None else f"{one['mfu']:.1%}"
        print(
            f"| {name} | {one['tokens_per_second']:,.0f} | {used} | {one['peak_memory_gib']:.2f} | {one.get('loss', '–')} |"
        )
        for row in one.get("kinds", []):
            print(
                f"|   {row['kind']} | {row['milliseconds']:.3f} ms | {row['share']:.1%} | {row['calls']:,.0f} calls | {row['longest'][0]} |"
            )
    machine = {"gpu": gpu, "processor": processor(), "cores": os.cpu_count(), "versions": versions(*PACKAGES)}
    body = {
        "machine": machine,
        "processes": processes,
        "size": size,
        "plan": json.loads(written(plan)),
        "contenders": found,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(body, indent=1) + "\n")
    return int(any("error" in one for one in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
