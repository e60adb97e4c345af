"""Spikes of the loss and of the gradient: which steps are left out, under every engine, and the same after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crawl2llm.training.spikes import SpikeDetector
from tests.unit.stages.pretrain.runs import finish, kill, rows, same, wait_for
from tests.unit.stages.pretrain.test_nonfinite import KINDS, SHARED_OUT, poisoned

LOOKED = {"spike_sigma": 6, "spike_window": 20, "validate_every": 0}


def test_against_a_plain_window() -> None:
    """Loss and norm beside numpy's own mean and deviation; from max(20, window / 2) steps on, and by the last `window` alone."""
    chance = np.random.default_rng(0)
    for window in (20, 64):
        judge, least, seen = SpikeDetector(2, window, ()), max(20, window // 2), 0
        values = chance.standard_t(2, size=(400, 2)) + np.array([5, 100])
        for n, pair in enumerate(values):
            before = values[max(0, n - window) : n]
            wanted = ""
            if n + 1 >= least:
                limit = before.mean(0) + 2 * before.std(0, ddof=1)
                if pair[0] > limit[0]:
                    wanted = "loss"
                elif pair[1] > limit[1]:
                    wanted = "gradient"
            assert judge.is_spike(*pair) == bool(wanted) and judge.quantity == wanted
            if wanted:
                seen += 1
                assert judge.deviations > 2
                one = int(wanted == "gradient")
                assert judge.deviations == pytest.approx((pair[one] - before.mean(0)[one]) / before.std(0, ddof=1)[one])
            again = SpikeDetector(2, window, json.loads(json.dumps(list(judge.recent))))  # as a checkpoint has it
            assert list(again.recent) == list(judge.recent)
        assert seen > 5
    recent = [(5.0 + n % 2, 1.0 + n % 2) for n in range(20)]
    assert not SpikeDetector(3, 20, recent).is_spike(-100, 0) and SpikeDetector(3, 20, recent).is_spike(10, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "cases"), SHARED_OUT)
def test_a_spike_is_skipped(start: Any, tmp_path: Path, processes: int, cases: list[str]) -> None:
    """Nothing is judged before the 20th step."""
    changes = {"steps": 26, **LOOKED}
    errors = finish(poisoned(start, tmp_path, "steep:2,23 high:25", processes, changes, CASES=" ".join(cases)))
    assert errors.count("step 23: the gradient is ") == errors.count("step 25: the loss is ") == len(cases)
    assert "standard deviations above the mean of the last steps, its update is skipped (1 of at most 10)" in errors
    for case in cases:
        found = rows(tmp_path / f"out/{case}/losses.jsonl")
        left_out = {row["step"]: (row["skipped"], row["reason"]) for row in found if "skipped" in row}
        assert left_out == {23: ("gradient", "spike"), 25: ("loss", "spike")}, case
        assert all(row["deviations"] > 6 and row["documents"] for row in found if "skipped" in row)
        assert [row["step"] for row in found if "loss" in row] == list(range(1, 27))
        summary = json.loads((tmp_path / f"out/{case}/manifest.json").read_text())["summary"]
        assert summary["skipped_steps"] == [23, 25]
        assert any(
            "2 of 26 steps" in note and "far above that of the steps before" in note for note in summary["notes"]
        )


@pytest.mark.long
def test_a_skipped_spike_changes_nothing(start: Any, tmp_path: Path) -> None:
    """The last step is a spike: the weights are those of the run that ends one step before it, byte for byte."""
    changes = {"schedule": "constant", "warmup": 0, **LOOKED}
    cases = [f"{kind}-{steps}" for kind in KINDS for steps in (22, 23)]
    errors = finish(poisoned(start, tmp_path, "steep:23", 1, changes, CASES=" ".join(cases)))
    assert errors.count("step 23: the gradient is ") == len(KINDS)
    for kind in KINDS:
        short, long = (tmp_path / f"out/{kind}-{steps}/model/model.safetensors" for steps in (22, 23))
        assert short.read_bytes() == long.read_bytes(), kind


@pytest.mark.long
@pytest.mark.parametrize("more", [{"zero_stage": 1}, {"zero_stage": 3, "engine": "torch"}])
def test_resumed_before_a_spike_skips_it_too(start: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    """Killed while the window is not full: the checkpoint has what it held. On one process instead of two the same steps are left out."""
    poison, changes = "steep:24 high:28", {"steps": 30, **LOOKED, **more}
    whole = tmp_path / "whole"
    finish(poisoned(start, whole, poison, 2, changes))
    for processes in (2, 1):
        folder = tmp_path / f"killed-{processes}"
        process = poisoned(start, folder, poison, 2, changes)
        wait_for(process, folder, "checkpoints/*/step-000020")
        kill(process)
        assert "resuming after step" in finish(poisoned(start, folder, poison, processes, changes))
        if processes == 2:
            same(whole, folder)
        summary = json.loads((folder / "out/manifest.json").read_text())["summary"]
        assert summary["skipped_steps"] == [24, 28]
