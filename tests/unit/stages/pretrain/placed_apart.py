"""Trains the same model under several placements of a number of processes, in one process group.

    RANK=… WORLD_SIZE=… python -m tests.unit.stages.pretrain.placed_apart OUT CASE…

Process 0 writes OUT/PROCESSES.json: losses, norms, evaluation and a digest of the weights of each case, by its name, such as
`tensor-2-0-fp32` (ZeRO stage, precision); the same of what goes on from its checkpoint, and from those that other cases have left in OUT.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import AutoConfig, PreTrainedConfig

from crawl2llm.training import checkpoint, ema, engine, group, initial, parallel, routers, schedule
from crawl2llm.training.engines.by_name import ENGINES
from crawl2llm.training.engines.saved_parameters import saved_parameters
from tests.unit.stages.pretrain.side_by_side import CPU, HALF, STEPS, settings, state

SEQUENCES, CONTEXT, VOCABULARY = 16, 16, 101
BATCH = 4  # micro-batches of a step, each of SEQUENCES / BATCH sequences over all processes
BALANCED = "glm4_moe"  # whose routers' biases move, beside a loss of their logits
TYPES = ("mistral", "qwen2", "qwen3", "olmo2", "phi3", "gpt2", "mixtral", "olmoe")
PLANNED = ("mistral", "qwen2", "qwen3", "olmo2", "phi3", "mixtral", "olmoe")
CASES = {  # by the number of processes: what every run of the tests trains
    1: [*(f"alone-1-0-{kind}" for kind in ("fp32", "bf16", "muon", "ema", "mixtral.muon", BALANCED)), "alone-1-1-bf16"],
    2: [
        *("tensor-2-0-fp32", "tensor-2-3-bf16", "sequence-2-0-fp32", "sequence-2-3-muon", "pipeline-2-0-fp32", "pipeline-2-1-bf16"),
        *("pipeline-2-0-ema", "expert-2-0-mixtral.muon", f"alone-1-0-{BALANCED}", f"alone-1-3-{BALANCED}"),
    ],
    4: ["tensor-2-1-fp32", "pipeline-2-0-fp32", "tensor-2+pipeline-2-0-muon", "alone-1-2-node", "alone-1-3-node.muon"],
}  # fmt: skip
MORE = {  # and those that are tried beside: every type that is allowed
    1: [f"alone-1-0-{kind}" for kind in ("again", "untied", *TYPES)],
    2: [
        *(f"tensor-2-{kind}" for kind in ("3-fp32", "0-bf16", "0-again", "0-untied", "0-muon", *(f"0-{kind}" for kind in PLANNED))),
        *(f"sequence-2-{kind}" for kind in ("2-fp32", "0-bf16", "0-again", "0-muon", *(f"0-{kind}" for kind in TYPES))),
        *(f"pipeline-2-{kind}" for kind in ("1-fp32", "0-bf16", "1-again", "0-untied", "1-muon", *(f"0-{kind}" for kind in TYPES[:5]))),
        *("expert-2-0-mixtral", "expert-2-0-olmoe"),
    ],
    4: [
        *("tensor-2-0-fp32", "sequence-2-1-fp32", "pipeline-2-3-fp32", "pipeline-2-3-muon", "pipeline-4-0-fp32", "tensor-2-3-qwen3"),
        *("expert-2-0-mixtral", "tensor-2+pipeline-2-0-fp32", "tensor-2+expert-2-0-olmoe", "sequence-2+pipeline-2-0-fp32"),
    ],
}  # fmt: skip
ELSEWHERE = {"alone-1-0-fp32": ("tensor-2-0-fp32",), "pipeline-2-0-fp32": ("alone-1-0-fp32", "tensor-2-0-fp32")}


def shape(kind: str) -> PreTrainedConfig:
    """A tiny model: a Llama whose embedding is its head too, or one of another type."""
    kind = kind.partition(".")[0]
    more: dict[str, Any] = {"tie_word_embeddings": kind != "untied"}
    # Routers of different batches are trained by different losses: without theirs, processes train what one does.
    experts = {"num_experts_per_tok": 2, "router_aux_loss_coef": 0.0}
    more |= {
        "mixtral": {"num_local_experts": 4, **experts},
        "olmoe": {"num_experts": 4, **experts},
        "qwen3": {"head_dim": 8},
        BALANCED: {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
            "head_dim": 8,
        },
    }.get(kind, {})
    model_type = kind if kind in (*TYPES, BALANCED) else "llama"
    own = {} if model_type == "gpt2" else {"intermediate_size": 64, "num_key_value_heads": 2}
    off = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0} if model_type == "gpt2" else {}
    return AutoConfig.for_model(
        model_type, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, vocab_size=VOCABULARY, max_position_embeddings=CONTEXT,
        bos_token_id=0, eos_token_id=0, pad_token_id=None, **own, **more, **off,
    )  # fmt: skip


def batch(step: int) -> torch.Tensor:
    """The global batch of a step: int64 [micro-batches, sequences, context + 1]."""
    chance = torch.Generator().manual_seed(step)
    return torch.randint(0, VOCABULARY, (BATCH, SEQUENCES // BATCH, CONTEXT + 1), generator=chance)


class Case:
    """A placement: `tensor-2+pipeline-2-0-fp32` is its degrees, the ZeRO stage, and a precision, another model, another optimizer (or
    both), `ema`: an EMA of the weights, `again`: activations are computed again, or `node`: two nodes share out the weights each."""

    def __init__(self, name: str) -> None:
        degrees, stage, kind = name.rsplit("-", 2)
        pairs = dict(each.split("-") for each in degrees.split("+"))
        self.name = name
        self.degrees = parallel.Degrees(**{key: int(size) for key, size in pairs.items() if key != "alone"})
        self.config, self.recomputed = shape(kind), kind == "again"
        precision = "bf16" if kind == "bf16" else "fp32"
        moves, mean = "muon" if kind.endswith("muon") else "adamw", 0.6 if kind == "ema" else None
        self.of_node = dist.get_world_size() // (2 if kind.startswith("node") else 1)
        self.settings = settings(
            engine="torch",
            zero_stage=int(stage),
            precision=precision,
            optimizer=moves,
            z_loss=1e-3,
            **({"router_z_loss": 1e-3, "router_bias_rate": 0.01} if kind == BALANCED else {}),
            ema=mean,
            shard_over="node" if kind.startswith("node") else "all",
        )
        self.place = parallel.Place(dist.get_rank(), dist.get_world_size(), self.degrees)

    def made(self) -> engine.Engine:
        """An engine with a model that has its initial weights."""
        parallel.check_degrees(self.degrees, self.place.processes, self.settings.pretraining)
        parallel.check_model(self.degrees, self.config, CONTEXT, BATCH)
        os.environ["LOCAL_WORLD_SIZE"] = str(self.of_node)
        values = partial(initial.random_weights, self.config, 7)
        micro = SEQUENCES // BATCH // self.place.data_processes
        job = engine.Job(
            config=self.config,
            settings=self.settings,
            device=CPU,
            micro_batch=micro,
            accumulation=BATCH,
            recomputed=self.recomputed,
            values=values,
            parallel=self.degrees,
        )
        return ENGINES["torch"](job)

    def train(self, built: engine.Engine, steps: range) -> list[tuple[float, float | None]]:
        """(loss over all processes, norm) of each step, as training/run.py makes them."""
        rows = []
        for step in steps:
            mine = batch(step).chunk(self.place.data_processes, dim=1)[self.place.data_rank]
            found = built.step(mine, schedule.learning_rate(step, STEPS, self.settings))
            if self.settings.ema:
                built.update_ema(ema.update_weight(self.settings.ema, step))
            total = found.loss / self.place.processes
            dist.all_reduce(total)
            rows.append((float(total), found.norm))
        return rows

    def evaluated(self, built: engine.Engine) -> float:
        """The summed loss of sequences of an odd length, some of whose targets do not count."""
        tokens = batch(0).flatten(0, 1)[:, :-1].chunk(self.place.data_processes)[self.place.data_rank]
        targets = tokens[:, 1:].clone()
        targets[:, :3] = -100
        with built.using_ema() if self.settings.ema else contextlib.nullcontext():
            total = built.evaluate(tokens[:, :-1], targets).sum()
        dist.all_reduce(total)
        return float(total) / self.degrees.loss_copies

    def went_on(self, found: checkpoint.Checkpoint) -> dict[str, Any]:
        """What a fresh engine trains from a checkpoint on."""
        again = self.made()
        again.load(found, found.path.parent)
        rows = self.train(again, range(found.step + 1, STEPS + 1))
        return {"steps": rows, "weights": self.result(again)[0]}

    def result(self, built: engine.Engine) -> tuple[str, float]:
        """(digest, sum) of the weights that a training writes."""
        return state(built.ema_weights() if self.settings.ema else built.master_weights())

    def run(self, out: Path) -> dict[str, Any]:
        """All that is compared. out: with a folder of each case and number of processes."""
        group.join_group(CPU, 1)
        place = out / str(self.place.processes) / self.name
        built = self.made()
        begun = state(built.master_weights())[0]
        held = sum(getattr(value, "_local_tensor", value).numel() for value in built.model.parameters())
        rows = self.train(built, range(1, HALF + 1))
        stage = self.settings.zero_stage
        saved = checkpoint.Checkpoint(
            path=place / f"step-{HALF:06d}",
            step=HALF,
            processes=self.place.processes,
            zero_stage=stage,
            settings="s",
            code={},
            engine="torch",
        )
        if dist.get_rank() == 0:
            place.mkdir(parents=True)
        dist.barrier()
        checkpoint.save(built.save, saved, checkpoint.KeepPolicy(1))
        half = state(built.master_weights())[0]
        rows += self.train(built, range(HALF + 1, STEPS + 1))
        mark, total = self.result(built)
        found = {
            "initial": begun,
            "held": held,
            "steps": rows,
            "weights": mark,
            "sum": total,
            "evaluated": self.evaluated(built),
        }
        found["after"] = self.train(built, range(STEPS, STEPS + 1))
        (whole,) = checkpoint.complete_checkpoints(place)
        found["resumed"] = self.went_on(whole)
        empty = initial.empty_model(self.config)
        sizes = {name: value.shape for name, value in routers.trained_values(empty).items()}
        neutral = [
            (name, kinds["weight"].reshape(sizes[name])) for name, kinds in saved_parameters(whole, sizes, place)
        ]
        found["neutral"] = state(iter(neutral))[0] == half
        for other in ELSEWHERE.get(self.name, ()):
            for path in sorted(out.glob(f"*/{other}")):
                found[f"from {path.parent.name}/{other}"] = self.went_on(checkpoint.complete_checkpoints(path)[0])
        found["skips"] = self.skips(built)
        return found

    def skips(self, built: engine.Engine) -> bool:
        """Whether a step whose gradient is not finite leaves weights as they are."""
        before = state(built.master_weights())[0]
        built.z_loss = float("inf")
        update = built.step(batch(1).chunk(self.place.data_processes, dim=1)[self.place.data_rank], 0.01)
        return not update.applied and bool(update.loss.isfinite()) and state(built.master_weights())[0] == before


def main() -> None:
    out, world = Path(sys.argv[1]), int(os.environ["WORLD_SIZE"])
    group.join_group(CPU, 1)
    found = {name: Case(name).run(out) for name in sys.argv[2:]}
    if dist.get_rank() == 0:
        (out / f"{world}.json").write_text(json.dumps(found))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
