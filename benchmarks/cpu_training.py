"""Our trainer beside others on a CPU, at the demo's shape, in turn, in one run: tokens/s and peak memory.

    pip install --no-deps --target ../litgpt litgpt lightning lightning-utilities torchmetrics jsonargparse
    PYTHONPATH=../litgpt python -m benchmarks.cpu_training --nanogpt ../nanoGPT    # writes benchmarks/results/cpu_training.json

Every contender of benchmarks.gpu_training that is here trains a Llama of the demo's shape (nanoGPT: GPT-2's layers of the same width and
depth) on synthetic tokens with AdamW in fp32, the demo's 2,048 tokens a step, in each of the ways to use the cores: one process with as
many threads as there are cores, and as many processes as there are cores, or as the step's sequences can be dealt to. Its speed is that of
its faster way. Ours are started as the demo starts them, which has glibc keep memory (training/processes.py); the others as their
users start them. Contenders take turns `--rounds` times; a step's time is the median over blocks of 5 steps, and over rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import yaml

from benchmarks.contest import Plan, written
from benchmarks.gpu_training import side_by_side, summary
from benchmarks.machine import processor, versions
from crawl2llm.chain import config
from crawl2llm.core.root import ROOT

RESULT = ROOT / "benchmarks/results/cpu_training.json"
PACKAGES = ("torch", "transformers", "deepspeed", "accelerate", "litgpt")
OURS = ("torch", "deepspeed")


def demo() -> dict[str, Any]:
    """The settings of config.yaml."""
    return config.validate(yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8")))


def sequences() -> int:
    """Of the demo's step."""
    train = demo()["pretrain"]["train"]
    return int(train["global_batch_tokens"] // train["model"]["context"])


def most(cores: int) -> int:
    """The most processes, up to one for each core, that the sequences of a step can be dealt to evenly."""
    return max(number for number in range(1, cores + 1) if sequences() % number == 0)


def plan(args: argparse.Namespace, processes: int) -> Plan:
    """The demo's step, shared by so many processes; SystemExit where its sequences cannot be dealt to them evenly."""
    settings = demo()
    train, vocabulary = settings["pretrain"]["train"], settings["tokenize"]["train"]["vocabulary"]
    shape = train["model"]
    each, rest = divmod(sequences(), processes)
    if rest:
        raise SystemExit(f"--processes {processes}: the {sequences()} sequences of the demo's step do not divide by it")
    micro = next(size for size in range(min(train["micro_batch"], each), 0, -1) if each % size == 0)
    return Plan(
        hidden=shape["hidden_size"], layers=shape["layers"], heads=shape["heads"], kv_heads=shape["kv_heads"],
        intermediate=shape["intermediate_size"], vocabulary=vocabulary, context=shape["context"], micro_batch=micro,
        accumulation=each // micro, precision=args.precision, device="cpu", zero_stage=0, compile=args.compile,
        nanogpt=str(args.nanogpt) if args.nanogpt else None, warmup=args.warmup, steps=args.steps, block=5, profile=args.profile,
        settings={key: json.loads(value) for key, value in (one.split("=", 1) for one in args.set)},
        threads=max(1, (os.cpu_count() or 1) // processes),
    )  # fmt: skip


def parsed(argv: list[str] | None) -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", nargs="+", help="these contenders alone")
    made.add_argument(
        "--processes", type=int, nargs="+", help="ways to use the cores (default: 1, and as many as there are cores)"
    )
    made.add_argument("--precision", choices=("bf16", "fp32"), default="fp32")
    made.add_argument("--compile", action="store_true", help="compile the models of the other contenders")
    made.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a key of pretrain.train for ours, as JSON"
    )
    made.add_argument("--nanogpt", type=Path, help="a copy of github.com/karpathy/nanoGPT")
    made.add_argument("--rounds", type=int, default=3, help="turns of each contender (default: 3)")
    made.add_argument("--warmup", type=int, default=10, help="steps before the clock (default: 10)")
    made.add_argument("--steps", type=int, default=30, help="steps by the clock, in blocks of 5 (default: 30)")
    made.add_argument(
        "--profile", action="store_true", help="say by kind of operator where the time goes, over 5 further steps"
    )
    made.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    return made.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parsed(argv)
    ways = sorted(set(args.processes or [1, most(os.cpu_count() or 1)]))
    names = [*OURS, "plain", *(["nanogpt"] if args.nanogpt else [])]
    names += [
        name for name, package in (("trainer", "accelerate"), ("litgpt", "litgpt")) if importlib.util.find_spec(package)
    ]
    if unknown := sorted(set(args.only or []) - set(names)):
        raise SystemExit(
            f"--only {' '.join(unknown)}: not among {', '.join(names)} (a path or a package may be missing)"
        )
    pairs = [(name, way) for name in args.only or names for way in ways]
    rounds: dict[tuple[str, int], list[dict[str, Any]]] = {pair: [] for pair in pairs}
    for number in range(args.rounds):
        for name, way in pairs if number % 2 == 0 else reversed(pairs):
            rounds[name, way].append(side_by_side(name, plan(args, way), way, kept=name in OURS))
    found = {f"{name} × {way}": summary(each, plan(args, way), way, "") for (name, way), each in rounds.items()}
    print("| contender × processes | tokens/s | peak memory of process 0, GiB | loss |\n|---|---|---|---|")
    for key, one in found.items():
        if "error" in one:
            print(f"| {key} | failed: {one['error'].splitlines()[-1] if one['error'] else ''} | | |")
            continue
        print(f"| {key} | {one['tokens_per_second']:,.0f} | {one['peak_memory_gib']:.2f} | {one['loss']} |")
        for row in one.get("kinds", []):
            print(
                f"|   {row['kind']} | {row['milliseconds']:.3f} ms | {row['share']:.1%} | {row['calls']:,.0f} calls |"
            )
    rates = {key: one["tokens_per_second"] for key, one in found.items() if "error" not in one}
    best = {
        own: max((rate for key, rate in rates.items() if (key.split()[0] in OURS) == own), default=0.0)
        for own in (True, False)
    }
    ratio = round(best[True] / best[False], 3) if best[True] and best[False] else None
    if ratio:
        print(f"our fastest is {ratio:.2f} times the fastest of the others")
    body = {
        "machine": {"processor": processor(), "cores": os.cpu_count(), "versions": versions(*PACKAGES)},
        "plan": json.loads(written(plan(args, 1))), "contenders": found, "ratio": ratio,
    }  # fmt: skip
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(body, indent=1) + "\n")
    return int(any("error" in one for one in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
