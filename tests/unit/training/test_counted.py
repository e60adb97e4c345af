"""The estimate for a GPU beside what torch's trackers count of the engine, and beside what an H100 took: without a GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import adapter_memory, tracked_memory
from benchmarks.predicted_steps import WIDE_HEADS
from benchmarks.tracked_memory import CASES, MOMENTS, WITHIN, Case
from crawl2llm.core.root import ROOT

SMALL = {"shape": {"num_hidden_layers": 2}, "vocabulary": 8192}
QUICK = [
    Case(1, {"autocast": False, "loss_chunk": 4096}, 2, **SMALL),
    Case(8, {"zero_stage": 1}, **SMALL),
    Case(64, {"zero_stage": 3, "activation_checkpointing": True}, **SMALL),
]
LONG = [pytest.param(case, marks=pytest.mark.long, id=case.name) for case in CASES if not case.gloo]


@pytest.mark.slow
@pytest.mark.parametrize("case", [*(pytest.param(case, id=case.name) for case in QUICK), *LONG])
def test_the_estimate_is_what_torch_counts(case: Case) -> None:
    counted, expected = tracked_memory.track_memory(case), tracked_memory.estimate_memory(case)
    off = {moment: expected[moment] / counted[moment] - 1 for moment in MOMENTS}
    assert max(map(abs, off.values())) < WITHIN, off


@pytest.mark.long
@pytest.mark.parametrize("number", [number for number, case in enumerate(CASES) if case.gloo])
def test_the_estimate_is_what_torch_counts_of_real_processes(number: int) -> None:
    counted, expected = tracked_memory.count_case(number), tracked_memory.estimate_memory(CASES[number])
    assert all(abs(expected[moment] / counted[moment] - 1) < WITHIN for moment in MOMENTS), (counted, expected)


def test_the_table_is_of_these_cases() -> None:
    """docs/memory.md and the benchmark's JSON have every case, as it is estimated now."""
    rows = json.loads(tracked_memory.RESULT.read_text())["rows"]
    assert [row["case"] for row in rows] == [case.name for case in CASES]
    wrong = [
        row["case"]
        for row, case in zip(rows, CASES, strict=True)
        if row["estimate"] != tracked_memory.estimate_memory(case)
    ]
    assert not wrong, "python -m benchmarks.tracked_memory --estimates writes them again"
    table = "\n".join(tracked_memory.row_text(row) for row in rows)
    assert table in (ROOT / "docs/memory.md").read_text(), f"docs/memory.md: the table should say\n{table}"
    assert all(abs(row["estimate"][moment] / row["tracked"][moment] - 1) < WITHIN for row in rows for moment in MOMENTS)


def measured_peaks() -> list[tuple[str, Case, int]]:
    """(name, step, bytes) of what torch gave to tensors on an H100."""
    rows = []
    for line in json.loads((ROOT / "benchmarks/results/gpu_check.json").read_text())["lines"]:
        values: dict[str, Any] = line.get("values") or {}
        if "settings" in values and not values["eight_bits"]:
            rows.append((line["what"], values))
    steps = json.loads((ROOT / "benchmarks/results/gpu_steps.json").read_text())["rows"]
    rows += [(name, row) for name, row in steps.items() if row["allocated_bytes"]]
    return [
        (
            name,
            Case(
                1, values["settings"], micro_batch=values["micro_batch"], size="1B",
                shape=WIDE_HEADS if "heads of 128" in name else {},
            ),
            values["allocated_bytes"],
        )
        for name, values in rows
    ]  # fmt: skip


def test_the_estimate_is_near_what_an_h100_took() -> None:
    peaks = measured_peaks()
    assert len(peaks) > 12
    for name, case, size in peaks:
        within = 0.07 if case.train.engine == "deepspeed" else 0.01  # of deepspeed an upper bound
        assert abs(sum(tracked_memory.estimated_parts(case).values()) / size - 1) < within, name


def test_the_estimate_of_an_adapter_is_what_torch_counted() -> None:
    """Of every case of the benchmark's JSON, as it is estimated now."""
    rows = json.loads(adapter_memory.RESULT.read_text(encoding="utf-8"))["rows"]
    assert [row["case"] for row in rows] == [case.name for case in adapter_memory.CASES]
    for row, case in zip(rows, adapter_memory.CASES, strict=True):
        assert abs(adapter_memory.estimate_memory(case) / row["tracked"] - 1) < WITHIN, case.name
