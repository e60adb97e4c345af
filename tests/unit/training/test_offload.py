"""ZeRO-Offload: the configuration for DeepSpeed, the same training with optimizer and weights in the node's memory, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, memory
from tests.unit.stages.pretrain.runs import finish, kill_after, rows, same
from tests.unit.stages.pretrain.test_deepspeed_on_gpus import told
from tests.unit.training.typed import engine_settings, placed, train_settings

BOTH = {"offload_optimizer": "cpu", "offload_parameters": "cpu"}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_deepspeed_is_told(device: str) -> None:
    pinned = device == "cuda"
    found = told(device, 3, offload_optimizer="nvme", offload_parameters="cpu", offload_path="/disk")
    zero = found["zero_optimization"]
    assert zero["offload_optimizer"] == {"device": "nvme", "pin_memory": pinned, "nvme_path": "/disk"}
    assert zero["offload_param"] == {"device": "cpu", "pin_memory": pinned}
    weights = told(device, 3, offload_optimizer="cpu", offload_parameters="nvme", offload_path="/disk")[
        "zero_optimization"
    ]
    assert weights["offload_param"]["nvme_path"] == "/disk" and weights["offload_param"]["buffer_size"] == 100_000_000
    assert found["zero_force_ds_cpu_optimizer"] is False
    plain = told(device, 3)
    assert not plain["zero_optimization"].keys() & {"offload_optimizer", "offload_param"}
    assert "zero_force_ds_cpu_optimizer" not in plain


@pytest.mark.parametrize("zero", [1, 3])
def test_deepspeed_reads_it(zero: int, tmp_path: Path) -> None:
    """Its own configuration takes the sections, NVMe's folder included."""
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig, OffloadDeviceEnum

    changes = (
        {"offload_optimizer": "cpu"}
        if zero == 1
        else {**BOTH, "offload_optimizer": "nvme", "offload_path": str(tmp_path)}
    )
    made = DeepSpeedZeroConfig(**told("cuda", zero, **changes)["zero_optimization"])
    assert made.offload_optimizer.device == OffloadDeviceEnum(changes["offload_optimizer"])
    assert (made.offload_param is not None) == (zero == 3)
    assert zero == 1 or str(made.offload_optimizer.nvme_path) == str(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "processes"),
    [
        ({"zero_stage": 3, **BOTH, "precision": "bf16"}, 2),
        *(
            pytest.param({"zero_stage": stage, "offload_optimizer": "cpu"}, 2, marks=pytest.mark.long)
            for stage in (1, 2)
        ),
    ],
)
def test_it_trains_the_same(start: Any, tmp_path: Path, changes: dict[str, Any], processes: int) -> None:
    """On a CPU, where it is the same memory: losses as without, and the same bytes after a kill."""
    changes = {**changes, "steps": 12}
    plain = {key: value for key, value in changes.items() if not key.startswith("offload")}
    finish(start(tmp_path / "plain", processes, plain))
    finish(start(tmp_path / "whole", processes, changes))
    kill_after(start, tmp_path / "killed", 5, processes, changes)
    finish(start(tmp_path / "killed", processes, changes))
    same(tmp_path / "whole", tmp_path / "killed")
    losses = [
        [row["loss"] for row in rows(tmp_path / name / "out/losses.jsonl") if "loss" in row]
        for name in ("plain", "whole")
    ]
    near = 1e-2 if changes.get("precision") == "bf16" else 1e-5
    assert losses[1] == pytest.approx(losses[0], abs=near)
    scores = [json.loads((tmp_path / name / "out/manifest.json").read_text())["summary"] for name in ("plain", "whole")]
    assert scores[1]["validation_loss"] == pytest.approx(scores[0]["validation_loss"], abs=near)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": "torch", "offload_optimizer": "cpu"}, "engine torch, which keeps all where it trains"),
        ({"zero_stage": 0, "offload_optimizer": "cpu"}, "zero_stage 1, 2 or 3, and it is 0"),
        ({"zero_stage": 2, "offload_optimizer": "nvme", "offload_path": "x"}, "zero_stage 3, and it is 2"),
        ({"zero_stage": 2, **BOTH}, "offload_parameters is cpu, which ZeRO does with pretrain.train.zero_stage 3"),
        ({"zero_stage": 3, "offload_optimizer": "nvme"}, "offload_path is not set: name a folder on the disk"),
        ({"zero_stage": 3, "offload_parameters": "cpu"}, "offload_optimizer none: the optimizer takes more"),
        ({"zero_stage": 3, "offload_optimizer": "nvme", "offload_path": "x", "ema": 0.9}, "the mean follows weights"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        checks.check_settings(train_settings(**changes), 2)
    assert words in str(caught.value) and str(caught.value).startswith("pretrain.train.offload_")


def test_the_estimate_counts_it() -> None:
    """Llama 3's 8 billion parameters on 8 GPUs: what leaves the GPU is in the node's memory, or on its disk."""
    shape = memory.Shape(
        parameters=8_030_000_000, layers=32, hidden=4096, intermediate=14336, vocabulary=128256, context=2048, kv=1024
    )
    placement = placed(micro_batch=1, processes=8, activation_checkpointing=True)

    def sums(**changes: Any) -> tuple[int, dict[str, int]]:
        settings = engine_settings(precision="bf16", zero_stage=3, **changes)
        return sum(memory.memory_parts(shape, settings, placement, True).values()), memory.offloaded_bytes(
            shape, settings, placement
        )

    n = shape.parameters // 8
    (plain, none), (less, host), (least, both) = sums(), sums(offload_optimizer="cpu"), sums(**BOTH)
    assert none == {"host": 0, "nvme": 0}
    assert host == {"host": 16 * n, "nvme": 0} and both == {"host": 18 * n, "nvme": 0}
    assert plain - less > 12 * n and least < less
    _, disk = sums(offload_optimizer="nvme", offload_parameters="cpu")
    assert disk == {"nvme": 16 * n, "host": 16 * 10**9 + 2 * n}, (
        "a billion parameters are in memory while they are updated"
    )
    with pytest.raises(
        InputError, match=r"the 8 processes of this node keep 128\.5 GB in its memory, .* has 64\.0 GB free"
    ):
        settings = engine_settings(precision="bf16", zero_stage=3, offload_optimizer="cpu")
        memory.check_offload(shape, settings, placement, 64_000_000_000, 8)
