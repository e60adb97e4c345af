"""The demo's pre-training under other settings, each on as many tokens: bits per held-out byte and tokens per CPU second.

    make demo; python -m benchmarks.tuning --results results/main                    # writes benchmarks/results/tuning.json
    python -m benchmarks.tuning --results results/main --steps 1500 --only adamw "batch 1,024"

Every case is `pretrain.train` itself, in one process, on the tokens of a finished run, with the settings of config.yaml but for those that
the case names. `--steps` are those of the demo's batch; a case of another batch has as many tokens. One after the other; a case that
is in the JSON already, made with the same settings of pretrain.train, tokens and steps, is not trained again.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.machine import processor, run, versions
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.root import ROOT
from crawl2llm.training.processes import malloc_variables

CONFIG = ROOT / "config.yaml"
RESULT = ROOT / "benchmarks/results/tuning.json"
Case = dict[str, Any]
CASES: dict[str, Case] = {
    "the demo": {},
    "adamw": {"optimizer": "adamw"},
    "adamw, rate 0.003": {"optimizer": "adamw", "learning_rate": 0.003},
    "batch 4,096": {"global_batch_tokens": 4096},
    "batch 1,024": {"global_batch_tokens": 1024},
    "rate 0.005": {"learning_rate": 0.005},
    "rate 0.02": {"learning_rate": 0.02},
    "matrices 0.02": {"muon_learning_rate": 0.02},
    "matrices 0.08": {"muon_learning_rate": 0.08},
    "head of its own": {"model": {"tie_embeddings": False}},
    "llama (no norms of queries and keys)": {"model": {"type": "llama"}},
    "64 × 3": {"model": {"hidden_size": 64, "intermediate_size": 192, "heads": 2, "kv_heads": 2}},
    "weights from 0.05": {"model": {"overrides": {"initializer_range": 0.05}}},
    "linear schedule to 0": {"schedule": "linear", "min_learning_rate_ratio": 0.0},
}
"""Keys of pretrain.train that a case has otherwise than config.yaml."""


def settings(case: Case, steps: int) -> dict[str, Any]:
    """config.yaml for a case that sees as many tokens as `steps` steps of the demo."""
    made = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    train = made["pretrain"]["train"]
    tokens = steps * train["global_batch_tokens"]
    model = train["model"] | case.get("model", {})
    train |= copy.deepcopy(case) | {"model": model}
    batch = train["global_batch_tokens"]
    train |= {"steps": tokens // batch, "validate_every": 0}
    return dict(made)


def train(case: Case, steps: int, results: Path) -> dict[str, Any]:
    """Train a case; {bits_per_byte, tokens, cpu_seconds, tokens_per_cpu_second}."""
    with tempfile.TemporaryDirectory(prefix="tuning-") as place:
        folder = Path(place)
        (folder / "config.yaml").write_text(yaml.safe_dump(settings(case, steps)), encoding="utf-8")
        shards = sorted((results / "tokenize/encode").glob("*.manifest.json"))
        if not shards:
            raise SystemExit(
                f"{results}/tokenize/encode has no manifests: run `make demo` first, and name its results/main"
            )
        command = [
            sys.executable, "-m", "crawl2llm.stages.pretrain.train", "--config", "config.yaml", "--tokens", *map(str, shards),
            "--tokenizer", str(results / "tokenize/train/manifest.json"), "--manifest", "out/manifest.json",
            "--micro-batch", "4", "--checkpoint-every", str(steps * 10),
        ]  # fmt: skip
        used, _ = run(command, folder, PYTHONPATH=str(ROOT), **malloc_variables())
        made = Manifest.of_task(folder / "out/manifest.json").summary
    return {
        "bits_per_byte": round(made["bits_per_byte"], 4), "tokens": made["tokens"], "cpu_seconds": round(used["cpu"], 1),
        "tokens_per_cpu_second": round(made["tokens"] / used["cpu"]),
    }  # fmt: skip


def parsed(argv: list[str] | None) -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--results", type=Path, required=True, help="results/main of a run of the demo")
    made.add_argument(
        "--steps", type=int, default=750, help="steps of the demo's batch (default: 750, half of the demo's)"
    )
    made.add_argument("--only", nargs="+", metavar="CASE", help=f"these cases alone, of {', '.join(CASES)}")
    made.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    return made.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parsed(argv)
    if unknown := sorted(set(args.only or []) - set(CASES)):
        raise SystemExit(f"--only {' '.join(unknown)}: not among {', '.join(CASES)}")
    results = args.results.resolve()
    tokens = Manifest.of_task(results / "tokenize/train/manifest.json").fingerprint
    before = json.loads(args.out.read_text())["cases"] if args.out.is_file() else {}
    found: dict[str, dict[str, Any]] = {}
    print("| case | bits per byte | tokens | tokens per CPU second |\n|---|---|---|---|", flush=True)
    for name, case in CASES.items():
        # All of them: a figure from before an edit of config.yaml is not comparable.
        mark = {"settings": settings(case, args.steps)["pretrain"]["train"], "steps": args.steps, "tokens_of": tokens}
        known = before.get(name, {})
        if args.only and name not in args.only:
            if known:
                found[name] = known
            continue
        done = known if mark.items() <= known.items() else mark | train(case, args.steps, results)
        found[name] = done
        print(
            f"| {name} | {done['bits_per_byte']:.3f} | {done['tokens']:,} | {done['tokens_per_cpu_second']:,} |",
            flush=True,
        )
        machine = {
            "processor": processor(),
            "cores": os.cpu_count(),
            "versions": versions("torch", "transformers", "deepspeed"),
        }
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(
            json.dumps({"machine": machine, "cases": before | found}, indent=1) + "\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
