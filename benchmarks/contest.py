"""What all contenders of benchmarks.gpu_training and benchmarks.cpu_training are given: the plan, the tokens, the shape, the device."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

KEPT = 4  # batches that are made, and used in turn


@dataclass(frozen=True)
class Plan:
    """What all contenders are given. `settings`: further keys of pretrain.train, for our own trainer."""

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


def batches(plan: Plan, device: Any) -> list[Any]:
    """Synthetic tokens on the device: int64 [accumulation, micro_batch, context + 1] each, a walk that can be learned."""
    import torch

    made = []
    for number in range(KEPT):
        chance = torch.Generator().manual_seed(1000 * number + int(os.environ["RANK"]))
        moves = torch.randint(0, 16, (plan.accumulation, plan.micro_batch, plan.context + 1), generator=chance)
        made.append(((moves.cumsum(2) * 7) % plan.vocabulary).to(device))
    return made


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
