"""The estimate of an adapter's training beside what torch's MemTracker counts: the rows of docs/memory.md.

    python -m benchmarks.adapter_memory               # writes benchmarks/results/adapter_memory.json, prints the rows: no GPU, minutes

As benchmarks/tracked_memory.py, by the engine `torch` in one process: LoRA with fake tensors, QLoRA with real ones of a small model, since
bitsandbytes takes no fake ones. MemTracker does not see the scales of four-bit weights, some 3 % of these.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import tracked_memory
from benchmarks.machine import versions
from crawl2llm.core.root import ROOT
from crawl2llm.stages.finetune.settings import TrainSettings
from crawl2llm.training import memory
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.prediction import count

RESULT = ROOT / "benchmarks/results/adapter_memory.json"
WITHIN = 0.05
RATE = 1e-3


@dataclass(frozen=True)
class Case:
    """A training. shape: hidden size, heads, heads of keys, feed-forward width; its other numbers are those of each case alike."""

    type: str
    adapter: str
    recomputed: bool
    shape: tuple[int, int, int, int] = (2048, 32, 4, 5632)
    layers: int = 4
    vocabulary: int = 32_768
    context: int = 1024
    micro_batch: int = 2
    precision: str = "bf16"

    @property
    def config(self) -> Any:
        """The model's, of transformers."""
        from transformers import AutoConfig

        hidden, heads, kv_heads, feed = self.shape
        keys: dict[str, Any] = {
            "hidden_size": hidden, "intermediate_size": feed, "num_hidden_layers": self.layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "head_dim": hidden // heads, "vocab_size": self.vocabulary, "use_cache": False,
            "max_position_embeddings": self.context, "tie_word_embeddings": True, "eos_token_id": 0,
        }  # fmt: skip
        return AutoConfig.for_model(self.type, **keys)

    @property
    def settings(self) -> EngineSettings:
        """What the engine knows of finetune.train."""
        keys = {"engine": "torch", "zero_stage": 0, "precision": self.precision, "adapter": self.adapter}
        return EngineSettings.of_tuning(TrainSettings.model_validate(keys))

    @property
    def name(self) -> str:
        """In words: `qwen3, lora, recomputed`."""
        return ", ".join([self.type, self.adapter, *(["recomputed"] * self.recomputed)])


SMALL: dict[str, Any] = {"shape": (1024, 16, 4, 2816), "vocabulary": 8192, "context": 256}
CASES = [
    *(Case(kind, "lora", recomputed) for kind in ("llama", "qwen3") for recomputed in (False, True)),
    *(Case("llama", "qlora", recomputed, **SMALL) for recomputed in (False, True)),
]


def estimate_memory(case: Case) -> int:
    """Bytes of a GPU without its program."""
    from crawl2llm.training import model

    shape = memory.shape_of_config(case.config, model.count_parameters(case.config), case.context)
    placement = memory.Placement(
        micro_batch=case.micro_batch, processes=1, activation_checkpointing=case.recomputed, largest=case.micro_batch
    )
    parts = memory.memory_parts(shape, case.settings, placement, cuda=True)
    return sum(parts.values()) - parts["program"]


class _NoHook:
    def remove(self) -> None:
        """Nothing."""


@contextlib.contextmanager
def _hooks_of_trained_weights() -> Iterator[None]:
    """MemTracker asks every parameter for its gradient; frozen ones have none."""
    import torch

    names = ("register_hook", "register_post_accumulate_grad_hook")
    inner = {name: getattr(torch.Tensor, name) for name in names}

    def hook(name: str) -> Any:
        return lambda tensor, function: inner[name](tensor, function) if tensor.requires_grad else _NoHook()

    for name in names:
        setattr(torch.Tensor, name, hook(name))
    try:
        yield
    finally:
        for name in names:
            setattr(torch.Tensor, name, inner[name])


def track_memory(case: Case) -> int:
    """Bytes that torch's tracker counts of a step."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

    from crawl2llm.training import adapters, engine, initial

    warnings.filterwarnings("ignore", message="Accessing the data pointer")
    (kind, scalars), config, is_real = tracked_memory._kinds(), case.config, case.adapter == "qlora"

    def build() -> Any:
        with unset_fake_temporarily():
            built = adapters.empty_model(config, case.settings, "finetune.train")
        if not is_real:
            built.to_empty(device="cpu")
            built.tie_weights()
        return built

    def values() -> initial.Weights:
        return adapters.weights_with_adapter(build(), initial.random_weights(config, 0), 0) if is_real else iter(())

    job = engine.Job(
        config=config, settings=case.settings, device=torch.device("cpu"), micro_batch=case.micro_batch, accumulation=1,
        recomputed=case.recomputed, values=values, build_model=build,
        fill=adapters.fill_quantized_model if is_real else lambda built, *_: built,
    )  # fmt: skip
    fake: Any = contextlib.nullcontext() if is_real else FakeTensorMode(allow_non_fake_inputs=True)
    mode = contextlib.nullcontext() if is_real else scalars()
    with count.fake_group(1), fake, _hooks_of_trained_weights():
        trainer = kind(job)
        tokens = torch.zeros(1, case.micro_batch, case.context + 1, dtype=torch.int64)
        with mode:
            trainer.step(tokens, RATE)
        with count.pieces_of_a_gpu(), tracked_memory._tracker(trainer, mode) as tracker:
            trainer.step(tokens, RATE)
        peak = tracked_memory._peak(tracker)
        del trainer, tracker
    gc.collect()
    return peak


def row_text(row: dict[str, Any]) -> str:
    """The row of a case: MB counted, and how far off the estimate is."""
    return f"| {row['case']} | {row['tracked'] / 1e6:,.0f} | {row['estimate'] / row['tracked'] - 1:+.1%} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT, help="the JSON to write")
    args = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(
            {"case": case.name, **asdict(case), "tracked": track_memory(case), "estimate": estimate_memory(case)}
        )
        print(row_text(rows[-1]), flush=True)
    args.out.write_text(
        json.dumps({"versions": versions("torch", "transformers", "peft"), "rows": rows}, indent=1) + "\n"
    )
    worst = max(abs(row["estimate"] / row["tracked"] - 1) for row in rows)
    print(f"the largest deviation is {worst:.1%}")
    return int(worst > WITHIN)


if __name__ == "__main__":
    raise SystemExit(main())
