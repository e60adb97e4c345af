"""The training program on a GPU: killed and resumed, its log of the GPU, and from the CPU to the GPU and back."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.core.atomic_folder import CHECKPOINT
from tests.unit.stages.pretrain.conftest import shards, start, tokenizer  # noqa: F401 - fixtures
from tests.unit.stages.pretrain.runs import finish, rows, wait_for

pytestmark = pytest.mark.slow
STEPS, KILLED_AT = 300, 100
LONG = {"steps": STEPS, "validate_every": 100}
CASES: list[dict[str, Any]] = [
    {"engine": "torch", "zero_stage": 0, "precision": "bf16", "compile_layers": True, "loss_chunk": 64},
    {"engine": "torch", "zero_stage": 3, "precision": "bf16"},
    {"engine": "deepspeed", "zero_stage": 1, "precision": "bf16"},
]


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in rows(folder / "out/losses.jsonl") if "loss" in row]


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_killed_and_resumed_is_the_unbroken_training(start: Any, tmp_path: Path, changes: dict[str, Any]) -> None:  # noqa: F811
    options, changes = ["--device=cuda", "--log-every=10", "--checkpoint-every=50"], LONG | changes
    finish(start(tmp_path / "unbroken", 1, changes, *options, copied=False))
    killed = start(tmp_path / "killed", 1, changes, *options, copied=False)
    wait_for(killed, tmp_path / "killed", f"checkpoints/*/step-{KILLED_AT:06d}/{CHECKPOINT}")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (tmp_path / "killed/out/manifest.json").exists()
    assert f"step {KILLED_AT}" in finish(start(tmp_path / "killed", 1, changes, *options, copied=False))
    unbroken, resumed = losses(tmp_path / "unbroken"), losses(tmp_path / "killed")
    assert len(resumed) == STEPS and resumed == pytest.approx(unbroken, abs=0.02) and resumed[-1] < resumed[0] - 1
    measured = [row for row in rows(tmp_path / "unbroken/out/metrics.jsonl") if "gpu_temperature_celsius" in row]
    assert (
        measured and 0 < measured[-1]["gpu_temperature_celsius"] < 100 and measured[-1]["memory_max_reserved_gib"] > 0
    )


def test_a_training_of_the_cpu_goes_on_on_a_gpu(start: Any, tmp_path: Path) -> None:  # noqa: F811
    changes = {"engine": "torch", "zero_stage": 0}
    finish(start(tmp_path / "cpu", 1, changes, copied=False))
    moved = start(tmp_path / "moved", 1, changes, copied=False)
    wait_for(moved, tmp_path / "moved", f"checkpoints/*/step-000010/{CHECKPOINT}")
    os.killpg(moved.pid, signal.SIGKILL)
    moved.communicate()
    finish(start(tmp_path / "moved", 1, changes, "--device=cuda", copied=False))
    assert losses(tmp_path / "moved") == pytest.approx(losses(tmp_path / "cpu"), abs=1e-4)
