"""The plan, tokens, shape and device that are the same for all contenders of benchmarks.gpu_training and benchmarks.cpu_training."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.walk import walk

KEPT = 4  # batches that are made, and used in turn


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A training in numbers. `settings`: further keys of pretrain.train, for our own trainer."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    context: int
    micro_batch: int
    accumulation: int
    precision: str
    device: str
    zero_stage: int
    compile: bool
    nanogpt: str | None
    warmup: int
    steps: int
    block: int  # steps between two readings of the clock
    profile: bool
    settings: dict[str, Any] = field(default_factory=dict)
    threads: int = 1  # of a process

    @property
    def tokens(self) -> int:
        """Of a step of one process."""
        return self.micro_batch * self.accumulation * self.context


def written(plan: Plan) -> str:
    """A plan as JSON, its fields by name: what the process of a contender is given, and what a result keeps."""
    return json.dumps(asdict(plan))


def batches(plan: Plan, device: Any) -> list[Any]:
    """Synthetic tokens on the device: int64 [accumulation, micro_batch, context + 1] each, other ones in each process."""
    size = (plan.accumulation, plan.micro_batch, plan.context + 1)
    rank = int(os.environ["RANK"])
    return [walk(size, plan.vocabulary, 1000 * number + rank).to(device) for number in range(KEPT)]


def shape(plan: Plan) -> Any:
    """The Llama of all contenders but nanoGPT."""
    from transformers import AutoConfig

    return AutoConfig.for_model(
        "llama", hidden_size=plan.hidden, intermediate_size=plan.intermediate, num_hidden_layers=plan.layers,
        num_attention_heads=plan.heads, num_key_value_heads=plan.kv_heads, vocab_size=plan.vocabulary, use_cache=False,
        max_position_embeddings=plan.context, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def device_of(plan: Plan) -> Any:
    import torch

    if plan.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device
