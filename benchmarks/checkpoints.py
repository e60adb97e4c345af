"""How long a checkpoint holds up training, written while it waits and beside it (pretrain.train.async_checkpoints).

    python -m benchmarks.checkpoints                  # writes benchmarks/results/checkpoints.json, prints docs/resume.md's table

A Llama of 50 million parameters trains in fp32 with AdamW, engine torch, two processes of a thread each. Held: the time of the call
that saves, the longer one of the processes. Whole: from that call until the checkpoint counts. Step: a step of training while one is
written, and otherwise. Medians over the checkpoints but the first, whose memory is new. Cases are measured in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import group_of, processor, versions
from crawl2llm.core.root import ROOT
from crawl2llm.training.processes import environments, free_port

RESULT = ROOT / "benchmarks/results/checkpoints.json"
SHAPE = {
    "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 10, "num_attention_heads": 8, "num_key_value_heads": 8,
    "vocab_size": 32768, "max_position_embeddings": 128, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
CASES = [(stage, beside) for stage in (0, 3) for beside in (False, True)]
MOST = 200  # steps to wait for a checkpoint that is written beside


def worker(stage: int, is_beside: bool, saves: int, folder: Path) -> None:
    """One process of a case; process 0 prints the result."""
    import torch
    import torch.distributed as dist
    from transformers import AutoConfig

    from crawl2llm.training import async_checkpoints, checkpoint, engine, group, initial, model
    from crawl2llm.training.engine_settings import EngineSettings
    from crawl2llm.training.engines.by_name import ENGINES
    from crawl2llm.training.pretraining_settings import TrainSettings

    device, shape = torch.device("cpu"), AutoConfig.for_model("llama", **SHAPE)
    group.join_group(device, 1)
    keys = {"learning_rate": 0.001, "zero_stage": stage, "precision": "fp32", "engine": "torch"}
    settings = EngineSettings.of_pretraining(TrainSettings.model_validate(keys))
    job = engine.Job(
        config=shape, settings=settings, device=device, micro_batch=2, accumulation=1, recomputed=False,
        values=partial(initial.random_weights, shape, 0),
    )  # fmt: skip
    built = ENGINES["torch"](job)
    batch = torch.randint(0, 32768, (1, 2, 129), generator=torch.Generator().manual_seed(dist.get_rank()))
    writer, kept = async_checkpoints.AsyncWriter(folder), checkpoint.KeepPolicy(2)

    def longest(seconds: float) -> float:
        found = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return float(found)

    def step() -> float:
        dist.barrier()
        clock = time.perf_counter()
        built.step(batch, 0.0001)
        return longest(time.perf_counter() - clock)

    for _ in range(3):
        step()
    held, whole, during, without = [], [], [], []
    for number in range(saves):
        made = checkpoint.Checkpoint(
            path=folder / f"step-{number:06d}",
            step=number,
            processes=2,
            zero_stage=stage,
            settings="",
            code={},
            engine="torch",
        )
        dist.barrier()
        clock = time.perf_counter()
        if is_beside:
            writer.save(built.stage_checkpoint(), made, kept)
            held.append(longest(time.perf_counter() - clock))
            for _ in range(MOST):
                if longest(float(not made.path.exists())) == 0:
                    break
                during.append(step())
            whole.append(longest(time.perf_counter() - clock))
            writer.wait()
        else:
            checkpoint.save(built.save, made, kept)
            held.append(longest(time.perf_counter() - clock))
            whole.append(held[-1])
        without += [step() for _ in range(3)]
    size = sum(path.stat().st_size for path in (folder / f"step-{saves - 1:06d}").iterdir())
    if dist.get_rank() == 0:
        median = statistics.median
        found = {"held_seconds": median(held[1:]), "first_held_seconds": held[0], "whole_seconds": median(whole[1:])}
        found |= {"step_seconds": median(without), "step_seconds_while_written": median(during) if during else None}
        print(json.dumps({**found, "megabytes": size / 1e6, "parameters": model.count_parameters(shape)}), flush=True)
    dist.barrier()
    os._exit(0)


def measured(stage: int, is_beside: bool, saves: int, folder: Path) -> dict[str, Any]:
    """Run one case as a process group; RuntimeError where it fails. folder: on the disk that is measured; emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [
        sys.executable, "-m", "benchmarks.checkpoints", "--worker", f"{stage},{int(is_beside)}", "--saves", str(saves),
        "--folder", str(folder),
    ]  # fmt: skip
    found = group_of(command, environments(0, 1, 2, "127.0.0.1", free_port()))
    return {"zero_stage": stage, "async_checkpoints": is_beside, **found}


def row(found: dict[str, Any]) -> str:
    """A line of the table in docs/resume.md."""
    during = found["step_seconds_while_written"]
    cells = [found["zero_stage"], "while it goes on" if found["async_checkpoints"] else "while training waits"]
    cells += [f"{found[name]:.2f} s" for name in ("held_seconds", "whole_seconds", "step_seconds")]
    return f"| {' | '.join(map(str, cells))} | {f'{during:.2f} s' if during else '–'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saves", type=int, default=6, help="checkpoints of each case (default: 6)")
    parser.add_argument(
        "--folder", type=Path, help="where they are written; default: the system's folder for such files"
    )
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        stage, is_beside = map(int, args.worker.split(","))
        worker(stage, bool(is_beside), args.saves, args.folder)
    rows = []
    with tempfile.TemporaryDirectory() as made:
        for case in CASES:
            rows.append(measured(*case, args.saves, args.folder or Path(made) / "run"))
            print(row(rows[-1]), flush=True)
    machine = {"processor": processor(), "cores": os.cpu_count(), "versions": versions("torch", "transformers")}
    args.out.write_text(json.dumps({"machine": machine, "saves": args.saves, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
