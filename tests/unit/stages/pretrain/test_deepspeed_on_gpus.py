"""What DeepSpeed is told so that a GPU does not wait: its throughput timer, and sums beside the backward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig

from crawl2llm.training import engine
from crawl2llm.training.engines.deepspeed import deepspeed_config
from tests.unit.training.typed import engine_settings


def told(device: str, zero: int, **changes: Any) -> dict[str, Any]:
    config = AutoConfig.for_model("llama", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=64)
    wanted = {"engine": "deepspeed", "zero_stage": zero, "precision": "bf16", "learning_rate": 0.01, **changes}
    job = engine.Job(
        config=config,
        settings=engine_settings(**wanted),
        device=torch.device(device),
        micro_batch=2,
        accumulation=4,
        recomputed=False,
        values=lambda: iter(()),
    )
    return deepspeed_config(job, 1.0)


def test_its_throughput_timer_does_not_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would, when it starts and when it stops: twice in each micro-batch."""
    from deepspeed.accelerator import get_accelerator
    from deepspeed.utils.config import get_timers_config
    from deepspeed.utils.timer import ThroughputTimer

    waits: list[None] = []
    monkeypatch.setattr(type(get_accelerator()), "synchronize", lambda *_: waits.append(None))

    def counted(config: dict[str, Any]) -> int:
        timer = ThroughputTimer(get_timers_config(config), batch_size=8, start_step=0)
        waits.clear()
        for _ in range(4):
            timer.start()
            timer.stop(global_step=False)
        return len(waits)

    assert counted({}) == 8
    assert counted(told("cuda", 1)) == 0


@pytest.mark.parametrize(
    ("device", "zero", "reduce", "overlapped"),
    [
        ("cuda", 1, "auto", True),
        ("cuda", 2, "auto", True),
        ("cuda", 1, "fp32", True),
        ("cuda", 0, "auto", None),
        ("cuda", 3, "auto", None),
        ("cpu", 1, "auto", None),
        ("cpu", 2, "fp32", True),
    ],
)
def test_sums_go_on_beside_the_backward_pass_of_a_gpu(device: str, zero: int, reduce: str, overlapped: Any) -> None:
    """Under ZeRO 1 and 2, which do not by default; stage 3 does."""
    assert told(device, zero, reduce_dtype=reduce)["zero_optimization"].get("overlap_comm") is overlapped
