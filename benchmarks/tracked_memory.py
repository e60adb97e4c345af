"""The estimate of memory beside what torch's own trackers count of the engine `torch`, by setting: the table of docs/memory.md.

    python -m benchmarks.tracked_memory               # writes benchmarks/results/tracked_memory.json, prints the rows: no GPU, minutes

MemTracker and FSDPMemTracker (torch.distributed._tools) count the very step, a validation and the gathering of a checkpoint's weights with
fake tensors, which have no memory, in a fake group of 1, 8 or 64 processes. DDP takes no fake tensors: two processes with real ones.
Without CUDA's own memory, and layers are not compiled.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import group_of, versions
from crawl2llm.core.root import ROOT
from crawl2llm.training import memory
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.estimate import torch as estimate
from crawl2llm.training.estimate.parts import training_setup
from crawl2llm.training.prediction import checked_models
from crawl2llm.training.pretraining_settings import TrainSettings
from crawl2llm.training.processes import environments, free_port

RESULT = ROOT / "benchmarks/results/tracked_memory.json"
WITHIN = 0.05
OF_NODE = 8  # GPUs
MOMENTS = ("step", "validation", "checkpoint")


@dataclass(frozen=True)
class Case:
    """A training. settings: of pretrain.train; accumulation: micro-batches of a step; gloo: real processes and tensors."""

    processes: int
    settings: dict[str, Any]
    accumulation: int = 1
    micro_batch: int = 8
    size: str = "4 wide layers"
    context: int = checked_models.CONTEXT
    vocabulary: int = checked_models.VOCABULARY
    shape: dict[str, Any] = field(default_factory=dict)  # changes of the model of this size
    gloo: bool = False

    @property
    def train(self) -> TrainSettings:
        """pretrain.train."""
        usual = {"engine": "torch", "learning_rate": 3e-4, "precision": "bf16", "zero_stage": 0}
        return TrainSettings.model_validate(usual | self.settings)

    @property
    def config(self) -> Any:
        """The model's, of transformers."""
        return checked_models.llama_config(self.size, self.vocabulary, self.context, **self.shape)

    @property
    def name(self) -> str:
        """In words: `8, 1, bf16, loss_chunk 4096`."""
        train, words = self.train, []
        if train.activation_checkpointing:
            words.append("selective" if train.selective_checkpointing else "recomputed")
        words += [f"loss_chunk {train.loss_chunk}"] * bool(train.loss_chunk) + ["copies"] * (not train.autocast)
        words += ["Muon"] * (train.optimizer == "muon") + ["shard_over node"] * (train.shard_over == "node")
        words += [f"{self.accumulation} micro-batches"] * (self.accumulation > 1) + ["gloo"] * self.gloo
        words += ["22 layers"] * (self.size == "1B")
        return ", ".join([str(self.processes), str(train.zero_stage), train.precision, *words])


AGAIN = {"activation_checkpointing": True}
SELECTIVE = AGAIN | {"selective_checkpointing": True}
PIECES = {"loss_chunk": 4096}
SMALL = {"size": "4 layers", "context": 256, "vocabulary": 4096, "micro_batch": 4}
CASES = [
    Case(1, {}, 2),
    Case(1, SELECTIVE),
    Case(1, AGAIN | {"loss_chunk": 1024}, 2),
    Case(1, {"precision": "fp32"} | AGAIN),
    Case(1, {"autocast": False} | PIECES, 2),
    Case(1, {"optimizer": "muon"}),
    Case(1, {"zero_stage": 3} | AGAIN, 2),
    Case(2, {"precision": "fp32"}, gloo=True, **SMALL),
    Case(2, AGAIN, 2, gloo=True, **SMALL),
    Case(2, {"autocast": False}, gloo=True, **SMALL),
    Case(8, {"zero_stage": 1} | PIECES),
    Case(8, {"zero_stage": 1, "loss_chunk": 1024} | AGAIN, 2),
    Case(8, {"zero_stage": 2} | AGAIN, 2),
    Case(8, {"zero_stage": 3}),
    Case(8, {"zero_stage": 3, "loss_chunk": 1024} | SELECTIVE, 2),
    Case(64, {"zero_stage": 1, "optimizer": "muon"}),
    Case(64, {"zero_stage": 2}, 2, micro_batch=1),
    Case(64, {"zero_stage": 3, "shard_over": "node"}),
    Case(64, {"zero_stage": 3, "precision": "fp32"} | AGAIN),
    Case(64, {"zero_stage": 3, "loss_chunk": 1024} | AGAIN),
    Case(64, {"zero_stage": 3} | AGAIN, size="1B"),
]  # fmt: skip


def placement_of(case: Case) -> memory.Placement:
    """Where it runs."""
    train = case.train
    return memory.Placement(
        micro_batch=case.micro_batch, processes=case.processes, nodes=max(1, case.processes // OF_NODE),
        activation_checkpointing=train.activation_checkpointing, selective_checkpointing=train.selective_checkpointing,
        largest=case.micro_batch * case.processes * case.accumulation,
    )  # fmt: skip


def estimated_parts(case: Case) -> dict[str, int]:
    """Bytes of a GPU without its program, by part."""
    from crawl2llm.commands.gpu_check.steps import model_shape

    settings = EngineSettings.of_pretraining(case.train)
    parts = memory.memory_parts(model_shape(case.config, settings), settings, placement_of(case), cuda=True)
    return {name: size for name, size in parts.items() if name != "program"}


def estimate_memory(case: Case) -> dict[str, int]:
    """Bytes of a GPU without its program, of each of MOMENTS; the checkpoint is the last that step_moments has."""
    from crawl2llm.commands.gpu_check.steps import model_shape

    settings = EngineSettings.of_pretraining(case.train)
    shape = model_shape(case.config, settings)
    how = training_setup(settings, placement_of(case), cuda=True)
    validations = estimate.validation_moments(shape, how)
    every = [moment for moment in estimate.step_moments(shape, how) if moment not in validations]

    def largest(moments: list[dict[str, int]]) -> int:
        return max(sum(parts.values()) - parts["program"] for parts in moments)

    return dict(zip(MOMENTS, map(largest, (every, validations, every[-1:])), strict=True))


def _kinds() -> tuple[Any, Any]:
    """(the engine that is tracked, a mode in which the norm of a gradient without values is 1)."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from crawl2llm.training.prediction.count import FakeTorch

    class Tracked(FakeTorch):
        """Has its tracker see each micro-batch as a new one."""

        tracker: Any = None

        def _begin_micro_batch(self, last: bool) -> None:
            super()._begin_micro_batch(last)
            if self.tracker:
                self.tracker.reset_mod_stats()

    class Scalars(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten._local_scalar_dense.default:
                return 1.0
            return function(*args, **(kwargs or {}))

    return Tracked, Scalars


@contextlib.contextmanager
def _tracker(built: Any, scalars: Any) -> Iterator[Any]:
    """Tracks what the engine does; what it has already is counted."""
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed._tools.mem_tracker import MemTracker

    parameters = [*built.model.parameters(), *built.weights().values()]
    if built.zero:
        tracker: Any = FSDPMemTracker(built.runs, built.optimizer)
    else:
        tracker = MemTracker()
        tracker.track_external(built.model, built.optimizer, *parameters)
        tracker.track_external(*[parameter.grad for parameter in parameters if parameter.grad is not None])
    built.tracker = tracker
    with tracker, scalars:
        yield tracker


@contextlib.contextmanager
def _on_nodes(processes: int) -> Iterator[None]:
    """As a launcher says how many processes a node has."""
    name = "LOCAL_WORLD_SIZE"
    before = os.environ.get(name)
    os.environ[name] = str(min(OF_NODE, processes))
    try:
        yield
    finally:
        del os.environ[name]
        os.environ |= {} if before is None else {name: before}


def _peak(tracker: Any) -> int:
    """Bytes."""
    return sum(snapshot["Total"] for snapshot in tracker.get_tracker_snapshot("peak").values())


def track_memory(case: Case) -> dict[str, int]:
    """Bytes that torch's trackers count, of each of MOMENTS. With `gloo` a process of a group that is there."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from crawl2llm.training import engine, fused_cross_entropy, initial, layers
    from crawl2llm.training.engines.torch import whole_tensor
    from crawl2llm.training.prediction import count

    warnings.filterwarnings("ignore", message="Accessing the data pointer")
    (kind, scalars), train, config = _kinds(), case.train, case.config
    job = engine.Job(
        config=config, settings=EngineSettings.of_pretraining(train), device=torch.device("cpu"), micro_batch=case.micro_batch,
        accumulation=case.accumulation, recomputed=train.activation_checkpointing, selective=train.selective_checkpointing,
        values=lambda: iter(()), fill=lambda made, *_: made, build_model=lambda: initial.empty_model(config, "cpu"),
    )  # fmt: skip
    group = contextlib.nullcontext() if case.gloo else count.fake_group(case.processes)
    fake: Any = contextlib.nullcontext() if case.gloo else FakeTensorMode(allow_non_fake_inputs=True)
    peaks = {}
    with _on_nodes(case.processes), group, fake:
        built = kind(job)
        tokens = torch.zeros(case.accumulation, case.micro_batch, case.context + 1, dtype=torch.int64)
        mode = contextlib.nullcontext() if case.gloo else scalars()
        with mode:  # DDP makes its buckets anew after it, and DTensor has found out which shapes an update has
            built.step(tokens, 1e-3)
        with count.pieces_of_a_gpu(fused_cross_entropy.PIECE), layers.without_packing_search():
            with _tracker(built, mode) as tracker:
                built.evaluate(tokens[0, :, :-1].contiguous(), tokens[0, :, 1:].contiguous())
            peaks["validation"] = _peak(tracker)
        with count.pieces_of_a_gpu(), _tracker(built, mode) as tracker:
            built.step(tokens, 1e-3)
        peaks["step"] = _peak(tracker)
        with _tracker(built, mode) as tracker:
            for weight in built.weights().values():
                whole_tensor(weight.detach())
        peaks["checkpoint"] = _peak(tracker)
        del built, tracker
    gc.collect()
    return {name: peaks[name] for name in MOMENTS}


def worker(number: int) -> None:
    """One process of a case; process 0 prints the result."""
    import torch
    import torch.distributed as dist

    from crawl2llm.training import group

    group.join_group(torch.device("cpu"), 1)
    peaks = track_memory(CASES[number])
    if dist.get_rank() == 0:
        print(json.dumps(peaks), flush=True)
    dist.destroy_process_group()


def count_case(number: int) -> dict[str, int]:
    """As `tracked`, of CASES[number]; with `gloo` by processes of their own."""
    if not CASES[number].gloo:
        return track_memory(CASES[number])
    command = [sys.executable, "-m", "benchmarks.tracked_memory", "--worker", str(number)]
    return group_of(command, environments(0, 1, CASES[number].processes, "127.0.0.1", free_port()))


def row_text(row: dict[str, Any]) -> str:
    """The row of a case: MB counted of a step, and how far off the estimate of each moment is."""
    off = " | ".join(f"{row['estimate'][moment] / row['tracked'][moment] - 1:+.1%}" for moment in MOMENTS)
    return f"| {row['case']} | {row['tracked']['step'] / 1e6:,.0f} | {off} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    parser.add_argument("--estimates", action="store_true", help="only estimate again, beside what was counted before")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        worker(args.worker)
        return 0
    rows: list[dict[str, Any]] = []
    counted: Iterator[dict[str, int]] = map(count_case, range(len(CASES)))
    if args.estimates:
        counted = (row["tracked"] for row in json.loads(args.out.read_text())["rows"])
    for case, peaks in zip(CASES, counted, strict=True):
        rows.append({"case": case.name, **asdict(case), "tracked": peaks, "estimate": estimate_memory(case)})
        print(row_text(rows[-1]), flush=True)
    args.out.write_text(json.dumps({"versions": versions("torch", "transformers"), "rows": rows}, indent=1) + "\n")
    worst = max(abs(row["estimate"][moment] / row["tracked"][moment] - 1) for row in rows for moment in MOMENTS)
    print(f"the largest deviation is {worst:.1%}")
    return int(worst > WITHIN)


if __name__ == "__main__":
    raise SystemExit(main())
