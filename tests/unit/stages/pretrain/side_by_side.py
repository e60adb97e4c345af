"""Trains the same model on the same batches with every engine, stage and precision, in one process group.

    RANK=… WORLD_SIZE=… python -m tests.unit.stages.pretrain.side_by_side OUT [cuda]

Process 0 writes OUT/PROCESSES.json: losses, norms, evaluation and a digest of the weights of each case, by its name, such as
`torch-3-bf16`; the same of what goes on from its checkpoint, and from that of other processes where OUT has it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import AutoConfig, PreTrainedConfig

from crawl2llm.training import checkpoint, engine, initial, model, schedule
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.engines.by_name import ENGINES
from crawl2llm.training.engines.saved_parameters import saved_parameters
from crawl2llm.training.group import join_group
from crawl2llm.training.initial import Weights
from tests.unit.training.typed import engine_settings

STEPS, HALF = 4, 2
MICRO, ACCUMULATION = 2, 2  # sequences of a micro-batch, and micro-batches of a step, over all processes
COPIES = "_copies"
LONG = "CRAWL2LLM_LONG"  # see tests/conftest.py
CASES = [
    *product(("deepspeed", "torch"), (0, 1, 3), ("fp32",), ("adamw",)),
    *product(("deepspeed", "torch"), (3,), ("bf16",), ("adamw",)),
    *product(("deepspeed", "torch"), (0,), ("fp32",), ("muon",)),
    ("torch", 3, "fp32", "muon"),
    ("torch", 0, "bf16_copies", "adamw"),  # autocast: false
]
MORE = [
    *product(("deepspeed", "torch"), (2,), ("fp32",), ("adamw",)),
    *product(("deepspeed", "torch"), range(3), ("bf16",), ("adamw",)),
    *product(("deepspeed", "torch"), (0,), ("bf16",), ("muon",)),
    *product(("torch",), (1, 2), ("fp32",), ("muon",)),
    ("torch", 3, "bf16", "muon"),
    ("torch", 0, "bf16_copies", "muon"),
]
CPU = torch.device("cpu")
DEVICE = torch.device("cuda", 0) if sys.argv[2:] == ["cuda"] else CPU


def named(name: str, stage: int, precision: str, optimizer: str) -> str:
    """A case, such as `torch-3-bf16` or `deepspeed-0-fp32-muon`."""
    suffix = "-muon" if optimizer == "muon" else ""
    return f"{name}-{stage}-{precision}{suffix}"


def shape() -> PreTrainedConfig:
    """A tiny Llama, whose embedding is its head too."""
    return AutoConfig.for_model(
        "llama", hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=101, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def settings(**changes: Any) -> EngineSettings:
    """Those of pretrain.train, with clipping that takes part in every step."""
    usual = {"steps": STEPS, "warmup": 0.0, "learning_rate": 0.01, "muon_learning_rate": 0.02, "gradient_clipping": 0.5}
    return engine_settings(**{**usual, **changes})


def batch(step: int) -> torch.Tensor:
    """The global batch of a step: int64 [micro-batches, sequences, context + 1]."""
    chance = torch.Generator().manual_seed(step)
    return torch.randint(0, 101, (ACCUMULATION * 2 // MICRO, 2 * MICRO // 2, 17), generator=chance)


def made(name: str, wanted: EngineSettings) -> engine.Engine:
    """An engine with a model that has its initial weights."""
    world = dist.get_world_size()
    values = partial(initial.random_weights, shape(), 7)
    job = engine.Job(
        config=shape(),
        settings=wanted,
        device=DEVICE,
        micro_batch=MICRO // world,
        accumulation=ACCUMULATION,
        recomputed=False,
        values=values,
    )
    return ENGINES[name](job)


def train(built: engine.Engine, wanted: EngineSettings, steps: range) -> list[tuple[float, float | None]]:
    """(loss over all processes, norm) of each step."""
    rows, rank, world = [], dist.get_rank(), dist.get_world_size()
    for step in steps:
        mine = batch(step).chunk(world, dim=1)[rank].to(DEVICE)
        found = built.step(mine, schedule.learning_rate(step, STEPS, wanted))
        total = found.loss / world
        dist.all_reduce(total)
        rows.append((float(total), found.norm))
    return rows


def state(weights: Weights) -> tuple[str, float]:
    """(digest, sum) of weights."""
    mark, total = hashlib.sha256(), 0.0
    for name, value in sorted(weights):
        mark.update(name.encode() + value.detach().cpu().numpy().tobytes())
        total += float(value.double().abs().sum())
    return mark.hexdigest(), total


def plain(optimizer: str) -> dict[str, Any]:
    """A loop without any engine, in fp32 in one process."""
    wanted = settings(optimizer=optimizer)
    built = initial.fill_model(initial.empty_model(shape()), CPU, initial.random_weights(shape(), 7))
    groups = model.parameter_groups(built, wanted)
    adam = {"betas": (wanted.beta1, wanted.beta2), "eps": wanted.epsilon, "lr": 0.01}
    moves = engine.Muon(groups, **adam) if optimizer == "muon" else torch.optim.AdamW(groups, **adam)
    rows = []
    for step in range(1, STEPS + 1):
        for group in moves.param_groups:
            group["lr"] = schedule.learning_rate(step, STEPS, wanted) * group["scale"]
        tokens = batch(step).flatten(0, 1)
        logits = built(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(built.parameters(), wanted.gradient_clipping)
        moves.step()
        moves.zero_grad()
        rows.append((float(loss), float(norm)))
    tokens = batch(0).flatten(0, 1)
    with torch.no_grad():
        logits = built(input_ids=tokens[:, :-1], use_cache=False).logits
    scored = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    mark, total = state((name, value.detach()) for name, value in built.named_parameters())
    return {"steps": rows, "evaluated": float(scored), "weights": mark, "sum": total}


def went_on(found: checkpoint.Checkpoint, wanted: EngineSettings, name: str = "") -> dict[str, Any]:
    """What a fresh engine trains from a checkpoint on; by default the one that wrote it."""
    again = made(name or found.engine, wanted)
    again.load(found, found.path.parent)
    taken = state(again.master_weights())[0]
    rows = train(again, wanted, range(found.step + 1, STEPS + 1))
    return {"taken": taken, "steps": rows, "weights": state(again.master_weights())[0]}


def case(name: str, stage: int, precision: str, optimizer: str, place: Path, others: Path | None) -> dict[str, Any]:
    """One engine under one stage and precision. place: for its checkpoint; others: where the same case of other processes has one."""
    join_group(DEVICE, 1)
    wanted = settings(
        zero_stage=stage,
        precision=precision.removesuffix(COPIES),
        autocast=COPIES not in precision,
        optimizer=optimizer,
    )
    built = made(name, wanted)
    begun = state(built.master_weights())
    local = [getattr(value, "ds_tensor", getattr(value, "_local_tensor", value)) for value in built.model.parameters()]
    rows = train(built, wanted, range(1, HALF + 1))
    saved = checkpoint.Checkpoint(
        path=place / f"step-{HALF:06d}",
        step=HALF,
        processes=dist.get_world_size(),
        zero_stage=stage,
        settings="s",
        code={},
        engine=name,
    )
    if dist.get_rank() == 0:
        place.mkdir(parents=True)
    dist.barrier()
    checkpoint.save(built.save, saved, checkpoint.KeepPolicy(1))
    half = state(built.master_weights())[0]
    rows += train(built, wanted, range(HALF + 1, STEPS + 1))
    mark, total = state(built.master_weights())
    tokens = batch(0).flatten(0, 1).to(DEVICE)
    scored = float(built.evaluate(tokens[:, :-1], tokens[:, 1:]).sum())
    after = train(built, wanted, range(STEPS, STEPS + 1))  # an evaluation in between leaves nothing behind
    found = {
        "initial": begun[0],
        "half": half,
        "steps": rows,
        "evaluated": scored,
        "after": after,
        "weights": mark,
        "sum": total,
    }
    found["held"] = sum(value.numel() for value in local)
    (whole,) = checkpoint.complete_checkpoints(place)
    found["saved"] = sum(path.stat().st_size for path in whole.path.rglob("*") if path.is_file())
    found["resumed"] = went_on(whole, wanted)
    built.load(whole, place)  # the engine that has trained on goes back
    found["back"] = {
        "taken": half,
        "steps": train(built, wanted, range(HALF + 1, STEPS + 1)),
        "weights": state(built.master_weights())[0],
    }
    sizes = {name: value.shape for name, value in initial.empty_model(shape()).named_parameters()}
    neutral = [(name, kinds["weight"].reshape(sizes[name])) for name, kinds in saved_parameters(whole, sizes, place)]
    found["neutral"] = state(iter(neutral))[0] == half
    # What DeepSpeed has too.
    both = name == "torch" and COPIES not in precision and not (stage and optimizer == "muon")
    if both:
        (theirs,) = checkpoint.complete_checkpoints(place.with_name(place.name.replace("torch", "deepspeed")))
        found["adopted"] = went_on(theirs, wanted, "torch")
        found["given"] = went_on(whole, wanted, "deepspeed")
    if others:
        (elsewhere,) = checkpoint.complete_checkpoints(others)
        found["other"] = went_on(elsewhere, wanted)
        if both:
            found["given other"] = went_on(elsewhere, wanted, "deepspeed")
    if optimizer == "adamw" or name == "torch":  # under another stage, too
        found["staged"] = went_on(whole, replace(wanted, zero_stage=(stage + 1) % 4))
    return found


def main() -> None:
    names = {each: named(*each) for each in [*CASES, *(MORE if LONG in os.environ else [])]}
    out, world = Path(sys.argv[1]), int(os.environ["WORLD_SIZE"])
    others = next((path for path in out.iterdir() if path.is_dir() and path.name != str(world)), None)
    found = {
        name: case(*each, out / str(world) / name, others / name if others else None) for each, name in names.items()
    }
    if dist.get_rank() == 0:
        if world == 1:
            found |= {"plain": plain("adamw"), "plain-muon": plain("muon")}
        (out / f"{world}.json").write_text(json.dumps(found))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
