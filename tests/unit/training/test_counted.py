"""The estimate for a GPU beside what the engine really holds, with recomputation and validation: counted without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from crawl2llm.core.root import ROOT

pytestmark = pytest.mark.slow  # a program for each number of processes
NONE = {"micro_batch": 8, "accumulation": 2, "activation_checkpointing": False, "selective_checkpointing": False}
AGAIN = NONE | {"activation_checkpointing": True}
SELECTIVE = NONE | {"activation_checkpointing": True, "selective_checkpointing": True}
ONCE = {"accumulation": 1}
COPIES = {"zero_stage": 0, "autocast": False}
LOW, FULL = {"precision": "bf16"}, {"precision": "fp32"}
# The bounds that docs/memory.md gives: estimate / counted - 1.
STEP, VALIDATION = (-0.06, 0.06), (-0.03, 0.16)
CASES: dict[int, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    1: [
        (LOW | {"zero_stage": 0}, NONE),
        (LOW | {"zero_stage": 0}, AGAIN),
        (FULL | {"zero_stage": 0}, AGAIN),
        (LOW | {"zero_stage": 0, "loss_chunk": 512}, AGAIN),
        (LOW | COPIES, NONE),
        (LOW | COPIES | {"loss_chunk": 512}, AGAIN),
    ],
    4: [
        (LOW | {"zero_stage": 1}, NONE),
        (LOW | {"zero_stage": 1}, AGAIN),
        (LOW | {"zero_stage": 2, "loss_chunk": 512}, AGAIN),
        (LOW | {"zero_stage": 3}, NONE),
        (LOW | {"zero_stage": 3}, AGAIN),
        (FULL | {"zero_stage": 3}, AGAIN),
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


def row(processes: int, case: tuple[dict[str, Any], dict[str, Any]], sizes: dict[str, dict[str, int]]) -> str:
    """The line of a case in the table of docs/memory.md: MB."""
    settings, placement = case
    how = "all" if placement["activation_checkpointing"] else "–"
    if placement["selective_checkpointing"]:
        how = "selective"
    place = f"{processes}, {settings['zero_stage']}, {settings['precision']}"
    place += "" if settings.get("autocast", True) else " copies"
    estimate, held = sizes["estimate"], sizes["counted"]
    pairs = (held["step"], estimate["step"], held["validation"], estimate["validation"])
    numbers = " | ".join(f"{size / 1e6:.0f}" for size in pairs)
    return f"| {place} | {how} | {settings.get('loss_chunk') or '–'} | {numbers} |"


@pytest.mark.parametrize("processes", [1, pytest.param(4, marks=pytest.mark.long)])
def test_the_estimate_is_what_the_engine_holds(processes: int) -> None:
    wrong, rows = [], []
    for case, sizes in zip(CASES[processes], counted(processes), strict=True):
        estimate, held = sizes["estimate"], sizes["counted"]
        off = estimate["step"] / max(held.values()) - 1, estimate["validation"] / held["validation"] - 1
        if not (STEP[0] < off[0] < STEP[1] and VALIDATION[0] < off[1] < VALIDATION[1]):
            wrong.append((case, off))
        # Under loss_chunk the logits are never there all at once.
        assert not case[0].get("loss_chunk") or held["validation"] < held["step"], case
        rows.append(row(processes, case, sizes))
    assert not wrong
    assert "\n".join(rows) in (ROOT / "docs/memory.md").read_text(), (
        "docs/memory.md: the table should say\n" + "\n".join(rows)
    )
