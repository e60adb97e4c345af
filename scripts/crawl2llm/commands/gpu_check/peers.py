"""Other trainers on the same model and batch, from copies of their repositories, beside the project's own engine: nanoGPT and torchtitan.

Each process of the check starts a process of the other trainer on its GPU, and reads what it prints. nanoGPT trains a GPT-2 of the Llama's
width and depth, and so does the engine beside it; torchtitan trains the Llama itself (titan.py), within documents, as it always does.
"""

from __future__ import annotations

import os
import pickle
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.commands.gpu_check import models
from crawl2llm.commands.gpu_check.lines import SKIPPED, Line
from crawl2llm.commands.gpu_check.place import Place
from crawl2llm.commands.gpu_check.steps import FUSED, measure_steps
from crawl2llm.commands.gpu_check.titan import VARIABLE
from crawl2llm.core.console import print_line
from crawl2llm.training.prediction.checked_models import CONTEXT, SIZES, VOCABULARY
from crawl2llm.training.processes import RANKS, free_port

CHECK = "peers"
WARMUP, STEPS, SECONDS = 10, 20, 240  # steps that are not counted, steps that are, seconds for all of a peer
MICRO_BATCH = 8
# nanoGPT's train.py: `iter 12: loss 5.6711, time 812.03ms, mfu 30.12%`.
NANO_LINE = re.compile(r"^iter \d+: loss ([\d.]+|nan), time ([\d.]+)ms", re.MULTILINE)
# torchtitan/components/metrics.py, MetricsProcessor.log: tokens/s of a device.
TITAN_LINE = re.compile(r"loss:\s*([\d.]+|nan).*?memory:\s*[\d.]+GiB.*?tps:\s*([\d,]+)")
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Peer:
    """What it is called; its command and environment, made by prepare(place, folder); tokens/s of a GPU by step, read from its output."""

    title: str
    prepare: Callable[[Place, Path], tuple[list[str], dict[str, str], Path]]
    read_rates: Callable[[str, int], list[float]]
    config: Callable[[Place], Any]


def sizes(place: Place) -> tuple[str, int, int, int]:
    """(name in SIZES, vocabulary, context, micro-batch) of what is trained."""
    return ("tiny", 512, 64, 2) if place.tiny else ("1B", VOCABULARY, CONTEXT, MICRO_BATCH)


def gpt2_config(place: Place) -> Any:
    """The GPT-2 of nanoGPT, with the biases that its train.py leaves out and transformers' cannot."""
    from transformers import AutoConfig

    size, vocabulary, context, _ = sizes(place)
    hidden, layers, heads, *_ = SIZES[size]
    keys: dict[str, Any] = {
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": heads,
        "vocab_size": vocabulary,
        "n_positions": context,
    }
    keys |= {f"{name}_pdrop": 0.0 for name in ("resid", "embd", "attn")} | {
        "use_cache": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return AutoConfig.for_model("gpt2", **keys)


def prepare_nanogpt(place: Place, repository: Path) -> tuple[list[str], dict[str, str], Path]:
    """(command, variables, folder) of its train.py on random tokens. It reads `data/` and configurator.py of the folder it runs in."""
    size, vocabulary, context, micro_batch = sizes(place)
    hidden, layers, heads, *_ = SIZES[size]
    folder = place.scratch / "nanogpt"
    data = folder / "data/check"
    if dist.get_rank() == 0:
        data.mkdir(parents=True)
        (folder / "configurator.py").symlink_to((repository / "configurator.py").resolve())
        for name in ("train.bin", "val.bin"):
            tokens = torch.randint(0, vocabulary, (max(100_000, 4 * context),), dtype=torch.int16)
            (data / name).write_bytes(bytes(tokens.untyped_storage()))
        (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": vocabulary}))
    place.gather(None)
    options: dict[str, Any] = {
        "dataset": "check", "out_dir": "out", "batch_size": micro_batch, "block_size": context, "n_layer": layers, "n_head": heads,
        "n_embd": hidden, "max_iters": WARMUP + STEPS, "eval_iters": 1, "log_interval": 1, "device": place.device.type,
        "gradient_accumulation_steps": place.processes if place.on_gpu else 1, "compile": place.on_gpu,
        "dtype": "bfloat16" if place.on_gpu else "float32", "always_save_checkpoint": False,
    }  # fmt: skip
    words = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, str(repository.resolve() / "train.py"), *words], {}, folder


def read_nanogpt(output: str, tokens: int) -> list[float]:
    """tokens/s of each step. tokens: of a step of a process."""
    return [tokens / (float(milliseconds) / 1e3) for _, milliseconds in NANO_LINE.findall(output)]


def prepare_torchtitan(place: Place, repository: Path) -> tuple[list[str], dict[str, str], Path]:
    """(command, variables, folder) of its train.py with the Llama of titan.py. It reads its test data, in the repository."""
    size, vocabulary, context, micro_batch = sizes(place)
    shape = [*SIZES[size], vocabulary, context, micro_batch, WARMUP + STEPS]
    command = [
        sys.executable,
        "-m",
        "torchtitan.train",
        "--module",
        "crawl2llm.commands.gpu_check.titan",
        "--config",
        "same_llama",
    ]
    path = os.pathsep.join([str(repository.resolve()), os.environ.get("PYTHONPATH", "")])
    return command, {"PYTHONPATH": path, VARIABLE: " ".join(map(str, shape))}, repository


def read_torchtitan(output: str, tokens: int) -> list[float]:
    """tokens/s of each step, as it says them itself."""
    return [float(rate.replace(",", "")) for _, rate in TITAN_LINE.findall(COLOUR.sub("", output))]


def llama(place: Place) -> Any:
    """The Llama of the check `steps`."""
    size, vocabulary, context, _ = sizes(place)
    return models.llama_config(size, vocabulary, context)


PEERS = {
    "nanogpt": Peer("nanoGPT", prepare_nanogpt, read_nanogpt, gpt2_config),
    "torchtitan": Peer("torchtitan", prepare_torchtitan, read_torchtitan, llama),
}


def check(place: Place) -> Iterator[Line]:
    """A line for each peer of which there is a copy: its tokens/s of a GPU, and those of the engine on the same model and batch."""
    for name, peer in PEERS.items():
        if name not in place.peers:
            yield Line(CHECK, peer.title, verdict=SKIPPED, note=f"no copy of its repository is given (--{name})")
            continue
        yield _compare(place, peer, place.peers[name])


def _compare(place: Place, peer: Peer, repository: Path) -> Line:
    *_, context, micro_batch = sizes(place)
    settings = models.engine_settings(**(FUSED if place.on_gpu else {"precision": "fp32"}))
    ours = measure_steps(place, peer.config(place), settings, micro_batch)["tokens_per_second"]
    models.release(place)
    rates, error = run_peer(place, peer, repository, micro_batch * context)
    what = f"{peer.title}, {micro_batch} × {context:,} tokens"
    if not rates:
        return Line(CHECK, what, verdict=SKIPPED, note=f"it does not run here: {error}", values={"ours": ours})
    theirs = statistics.median(rates)
    measured = f"{theirs:,.0f} tokens/s, this engine {ours:,.0f} ({ours / theirs:.2f} times)"
    return Line(CHECK, what, measured, values={"tokens_per_second": theirs, "ours": ours})


def run_peer(place: Place, peer: Peer, repository: Path, tokens: int) -> tuple[list[float], str]:
    """(tokens/s of process 0 by step after the warm-up, how it failed). A collective call. tokens: of a step of a process."""
    command, variables, folder = peer.prepare(place, repository)
    environment = os.environ | {"MASTER_PORT": str(place.gather(free_port())[0])} | variables
    if not place.on_gpu:  # they know no processes on a CPU
        environment = {name: value for name, value in environment.items() if name not in RANKS}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        output, error = done.stdout + done.stderr, "" if done.returncode == 0 else f"status {done.returncode}"
    except subprocess.TimeoutExpired:
        output, error = "", f"more than {SECONDS} s"
    print_line(output, sys.stderr)
    words = [line for line in output.splitlines() if line.strip()]
    rates = peer.read_rates(output, tokens)[WARMUP:] if not error else []
    return place.gather((rates, f"{error}: {words[-1][:300] if words else ''}"))[0]
