"""The estimate for a GPU beside what the engine really holds, with recomputation and validation: counted without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from scripts.workflow.config import ROOT

pytestmark = pytest.mark.slow  # a program for each number of processes
NONE = {"micro_batch": 8, "accumulation": 2, "activation_checkpointing": False, "selective_checkpointing": False}
AGAIN, SELECTIVE = (
    NONE | {"activation_checkpointing": True},
    NONE
    | {
        "activation_checkpointing": True,
        "selective_checkpointing": True,
    },
)
ONCE = {"accumulation": 1}
LOW, FULL = {"precision": "bf16"}, {"precision": "fp32"}
CASES: dict[int, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    1: [
        (LOW | {"zero_stage": 0}, NONE),
        (LOW | {"zero_stage": 0}, AGAIN),
        (FULL | {"zero_stage": 0}, AGAIN),
        (LOW | {"zero_stage": 0, "loss_chunk": 512}, AGAIN),
    ],
    4: [
        (LOW | {"zero_stage": 1}, AGAIN),
        (LOW | {"zero_stage": 2, "loss_chunk": 512}, AGAIN),
        (LOW | {"zero_stage": 3}, AGAIN),
        (LOW | {"zero_stage": 3}, SELECTIVE | ONCE),
    ],
}


def counted(processes: int) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.training.counted", str(processes), json.dumps(CASES[processes])],
        cwd=ROOT, capture_output=True, text=True, timeout=540, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("processes", CASES)
def test_the_estimate_is_what_the_engine_holds(processes: int) -> None:
    wrong = []
    for case, found in zip(CASES[processes], counted(processes), strict=True):
        estimate, held = found["estimate"], found["counted"]
        off = estimate["step"] / max(held.values()) - 1, estimate["validation"] / held["validation"] - 1
        if not (-0.06 < off[0] < 0.06 and -0.03 < off[1] < 0.16):
            wrong.append((case, off))
        # Under loss_chunk the logits are never there all at once.
        assert not case[0].get("loss_chunk") or held["validation"] < held["step"], case
    assert not wrong
