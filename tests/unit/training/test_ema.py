"""The EMA of the weights: as a plain loop over the weights of every step, under every engine, resumed to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from crawl2llm.training import checkpoint, ema, engine, export, initial
from crawl2llm.training.engines.saved_parameters import saved_parameters
from tests.unit.stages.pretrain.runs import finish, kill, kill_after, rows, same, wait_for
from tests.unit.stages.pretrain.test_nonfinite import poisoned

pytestmark = pytest.mark.slow  # starts trainings
CHANGES = {"ema": 0.8, "steps": 10, "validate_every": 5}
ALONE: list[dict[str, Any]] = [
    {"zero_stage": 3, "engine": "torch"},
    {"zero_stage": 0},
    {"zero_stage": 0, "precision": "bf16"},
    {"zero_stage": 1},
    {"zero_stage": 1, "precision": "bf16"},
    {"zero_stage": 2},
    {"zero_stage": 3, "precision": "bf16"},
    {"zero_stage": 0, "engine": "torch"},
]
CASES = [ALONE[0], *(pytest.param(case, marks=pytest.mark.long) for case in ALONE[1:])]
ALL = ("--checkpoint-every", "1", "--keep-checkpoints", "99")


@pytest.mark.parametrize("more", CASES)
def test_as_a_plain_loop(start: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    """A skipped step does not count; validation is that of the mean, and training is that of a run without one."""
    whole = tmp_path / "whole"
    finish(poisoned(start, whole, "gradient:7", 2, CHANGES | more, *ALL))
    found = checkpoint.complete_checkpoints(next(whole.glob("checkpoints/*/step-000010")).parent)
    from transformers import AutoConfig

    names = list(dict(initial.empty_model(AutoConfig.from_pretrained(found[0].path / "model")).named_parameters()))
    mean: dict[str, torch.Tensor] = {}
    for each in found:
        kinds = dict(saved_parameters(each, names, tmp_path))
        weights = {name: kind[engine.WEIGHT].float().reshape(-1).clone() for name, kind in kinds.items()}
        if each.step == 1:  # w is 1 − 2/11 of the way from the initial weights
            mean = {name: kind[ema.EMA].reshape(-1).clone() for name, kind in kinds.items()}
        elif each.step != 7:
            w = 1 - min(0.8, (1 + each.step) / (10 + each.step))
            mean = {name: value + w * (weights[name] - value) for name, value in mean.items()}
    model = load_file(whole / "out/model/model.safetensors")
    for name, value in model.items():
        assert torch.allclose(value.reshape(-1), mean[name], atol=1e-6), name
    assert any(not torch.allclose(value.reshape(-1), weights[name], atol=5e-5) for name, value in model.items())
    assert export.main([str(found[-1].path), str(tmp_path / "exported")]) == 0
    assert (tmp_path / "exported/model.safetensors").read_bytes() == (
        whole / "out/model/model.safetensors"
    ).read_bytes()

    without = tmp_path / "without"
    finish(poisoned(start, without, "gradient:7", 2, {**CHANGES, "ema": None} | more))
    ours, theirs = rows(whole / "out/losses.jsonl"), rows(without / "out/losses.jsonl")
    assert [row for row in ours if "loss" in row] == [row for row in theirs if "loss" in row]
    assert ours[-1]["validation_loss"] != theirs[-1]["validation_loss"]


@pytest.mark.long
@pytest.mark.parametrize("more", ALONE)
def test_killed_and_resumed_is_the_same(start: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(poisoned(start, whole, "gradient:7", 2, CHANGES | more))
    process = poisoned(start, killed, "gradient:7", 2, CHANGES | more)
    wait_for(process, killed, "checkpoints/*/step-000005")
    kill(process)
    assert "resuming after step" in finish(poisoned(start, killed, "gradient:7", 2, CHANGES | more))
    same(whole, killed)


@pytest.mark.long
def test_on_one_process_instead_of_two(start: Any, tmp_path: Path) -> None:
    """Parts of two processes, put together: the same validation and weights within rounding."""
    for n, more in enumerate(({"zero_stage": 1}, {"zero_stage": 3, "precision": "bf16"})):
        whole, other = tmp_path / f"whole-{n}", tmp_path / f"other-{n}"
        finish(start(whole, 2, CHANGES | more))
        kill_after(start, other, 5, 2, CHANGES | more)
        finish(start(other, 1, CHANGES | more))
        one, two = (load_file(folder / "out/model/model.safetensors") for folder in (whole, other))
        assert all(torch.allclose(one[name], two[name], atol=2e-2 if n else 1e-4) for name in one)
        losses = [
            json.loads((f / "out/manifest.json").read_text())["summary"]["validation_loss"] for f in (whole, other)
        ]
        assert losses[0] == pytest.approx(losses[1], abs=5e-3 if n else 1e-4)
