"""fp16 with dynamic loss scaling: an overflow costs one update and half the scale, and is no sign that a training diverges."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from crawl2llm.core.errors import InputError
from crawl2llm.training import checks, loss_scale
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.engines.deepspeed import DeepSpeed
from crawl2llm.training.loss_scale import LEAST_SCALE, LossScale, is_overflow
from tests.unit.stages.pretrain.runs import finish, kill_after, rows, same
from tests.unit.stages.pretrain.test_deepspeed_on_gpus import told
from tests.unit.stages.pretrain.test_nonfinite import poisoned
from tests.unit.training.typed import train_settings

FP16 = {"precision": "fp16", "engine": "torch", "validate_every": 0}


def test_the_scale_moves_as_torchs_own() -> None:
    """Beside torch.amp.GradScaler, on the same overflows."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    weight = torch.nn.Parameter(torch.ones(1))
    moves, own = torch.optim.SGD([weight], lr=0.0), LossScale(10, 3)
    for overflow in [False, True, False, False, False, False, True, True, False, False, False, False, False, False]:
        scaler.scale(weight.sum() * (float("inf") if overflow else 1.0)).backward()
        scaler.step(moves)
        scaler.update()
        moves.zero_grad()
        own.update(overflow)
        assert own.value == scaler.get_scale()
    for _ in range(30):
        own.update(True)
    assert own.value == LEAST_SCALE


def test_what_counts_as_an_overflow() -> None:
    inf, nan = float("inf"), float("nan")
    assert is_overflow(1024.0, 2.5, inf, False) and is_overflow(1024.0, 2.5, nan, False)
    assert not is_overflow(1024.0, 2.5, 0.1, True)
    assert not is_overflow(1024.0, nan, inf, False), "the loss itself is not finite: the training diverges"
    assert not is_overflow(LEAST_SCALE, 2.5, inf, False), "there is no smaller scale"
    assert not is_overflow(1024.0, 2.5, 3.0, False), "a spike, whose norm is finite"
    assert not is_overflow(None, 2.5, inf, False), "another precision"


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, pytest.param(1, marks=pytest.mark.long)])
def test_overflows_are_counted_and_the_rest_is_trained(start: Any, tmp_path: Path, processes: int) -> None:
    """Without ZeRO and under FSDP2: one overflow, one loss that is no number; losses are those of fp32 within fp16's rounding."""
    changes = {**FP16, "steps": 12, "max_skipped_steps": 1}
    cases = ["torch-0-fp16", "torch-3-fp16"]
    errors = finish(
        poisoned(
            start, tmp_path, "gradient:7 loss:9", processes, changes, "--max-skipped-steps", "1", CASES=" ".join(cases)
        )
    )
    finish(poisoned(start, tmp_path / "plain", "", processes, changes, CASES="torch-0-fp32"))
    assert (
        errors.count("step 7: the gradient overflowed in fp16, its update is left out; the loss scale is halved") == 2
    )
    assert errors.count("step 9: the loss is not finite, its update is skipped (1 of at most 1)") == 2
    exact = [row["loss"] for row in rows(tmp_path / "plain/out/torch-0-fp32/losses.jsonl") if "loss" in row]
    for case in cases:
        found = rows(tmp_path / f"out/{case}/losses.jsonl")
        left_out = {row["step"]: (row["skipped"], row["reason"]) for row in found if "skipped" in row}
        assert left_out == {7: ("gradient", "overflow"), 9: ("loss", "not finite")}, case
        losses = [row["loss"] for row in found if "loss" in row]
        assert len(losses) == 11 and losses[:7] == pytest.approx(exact[:7], abs=5e-3), case
        summary = json.loads((tmp_path / f"out/{case}/manifest.json").read_text())["summary"]
        assert summary["skipped_steps"] == [9] and summary["overflow_steps"] == 1
        assert summary["loss_scale"] == 2.0**14, "halved for each gradient that was not finite"
        assert any("1 of 12 updates were left out for an overflow" in note for note in summary["notes"])
        shown = [row for row in rows(tmp_path / f"out/{case}/metrics.jsonl") if "loss_scale" in row]
        assert [row["loss_scale"] for row in shown] == [2.0**16] * 6 + [2.0**15] * 2 + [2.0**14] * 4
        assert [row["overflow_steps"] for row in shown] == [0] * 6 + [1] * 6
        rates = [row["learning_rate"] for row in shown]
        plain = [row for row in rows(tmp_path / "plain/out/torch-0-fp32/metrics.jsonl") if "learning_rate" in row]
        assert rates == [row["learning_rate"] for row in plain], "the schedule goes on as if all were taken"


@pytest.mark.slow
def test_a_scale_that_is_too_large_finds_its_size_and_a_resumed_run_keeps_it(start: Any, tmp_path: Path) -> None:
    """From 2^32 down by real overflows, and up again every 4 updates; killed and resumed the files are the same, byte for byte."""
    changes = {**FP16, "zero_stage": 3, "steps": 30, "loss_scale_power": 32, "loss_scale_window": 4}
    finish(start(tmp_path / "whole", 2, changes))
    kill_after(start, tmp_path / "killed", 10, 2, changes)
    assert "resuming after step" in finish(start(tmp_path / "killed", 2, changes))
    same(tmp_path / "whole", tmp_path / "killed")
    summary = json.loads((tmp_path / "whole/out/manifest.json").read_text())["summary"]
    assert 5 < summary["overflow_steps"] < 25 and summary["skipped_steps"] == []
    shown = [row["loss_scale"] for row in rows(tmp_path / "whole/out/metrics.jsonl") if "loss_scale" in row]
    assert shown[0] == 2.0**31 and any(after > before for before, after in pairwise(shown))
    first = next(row["loss"] for row in rows(tmp_path / "whole/out/losses.jsonl"))
    assert summary["loss"] < first - 0.3, "it learns"


def test_deepspeed_is_told_the_same() -> None:
    found = told("cuda", 1, precision="fp16", loss_scale_power=12, loss_scale_window=500)
    wanted = {"enabled": True, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 1}
    assert found["fp16"] == {**wanted, "min_loss_scale": 1.0} and found["bf16"] == {"enabled": False}
    assert found["data_types"] == {"grad_accum_dtype": "fp32"}
    assert "fp16" not in told("cuda", 1)


def deepspeed_engine(window: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine with the scaler that DeepSpeed makes by our configuration, which begins at 2^12, and nothing else."""
    from deepspeed.runtime.fp16 import loss_scaler as theirs

    made = told("cuda", 1, precision="fp16", loss_scale_power=12, loss_scale_window=window)["fp16"]
    options = {
        "init_scale": 2 ** made["initial_scale_power"], "scale_window": made["loss_scale_window"],
        "min_scale": made["min_loss_scale"], "delayed_shift": made["hysteresis"], "consecutive_hysteresis": False,
    }  # fmt: skip
    scaler = theirs.CreateLossScaler(torch.half, 0, True, options)
    assert isinstance(scaler, theirs.DynamicLossScaler)
    monkeypatch.setattr(theirs.dist, "get_rank", lambda: 1)
    made_of = SimpleNamespace(scaled=True, engine=SimpleNamespace(optimizer=SimpleNamespace(loss_scaler=scaler)))
    made_of.loss_scale = lambda: DeepSpeed.loss_scale(made_of)  # type: ignore[arg-type]
    return made_of


def scaler_of(engine: Any) -> Any:
    return engine.engine.optimizer.loss_scaler


def test_deepspeeds_own_scale_is_read_and_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the scaler that its configuration makes: halved by an overflow as ours; a checkpoint's scale goes on, window included."""
    engine = deepspeed_engine(3, monkeypatch)
    scaler = scaler_of(engine)
    assert DeepSpeed.loss_scale(engine) == (2.0**12, 0)
    scaler.update_scale(True)
    assert DeepSpeed.loss_scale(engine) == (2.0**11, 0)
    DeepSpeed.set_loss_scale(engine, 256.0, 2)
    assert DeepSpeed.loss_scale(engine) == (256.0, 2)
    scaler.update_scale(False)
    assert DeepSpeed.loss_scale(engine) == (512.0, 0)
    scaler.cur_scale = 1.0
    with pytest.raises(Exception, match="loss scale already at minimum"):  # what the engine turns into words for people
        scaler.update_scale(True)


@pytest.mark.parametrize("done", range(1, 12))
def test_a_scale_that_has_doubled_doubles_again_when_it_would_have_in_any_engine(
    done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `done` updates a checkpoint is taken: DeepSpeed that goes on, DeepSpeed anew and torch have the same scales from there."""
    window = 3
    engine = deepspeed_engine(window, monkeypatch)
    for number in range(done):
        scaler_of(engine).update_scale(number == 0)
    value, steady = DeepSpeed.loss_scale(engine) or (0.0, 0)
    assert steady < window
    if done == 1:  # DeepSpeed does not count the first update after an overflow
        scaler_of(engine).update_scale(False)
    resumed, ours = deepspeed_engine(window, monkeypatch), LossScale(12, window)
    DeepSpeed.set_loss_scale(resumed, value, steady)
    ours.value, ours.steady = value, steady
    for _ in range(3 * window):
        for each in (engine, resumed):
            scaler_of(each).update_scale(False)
        ours.update(False)
        assert scaler_of(engine).cur_scale == scaler_of(resumed).cur_scale == ours.value
        assert DeepSpeed.loss_scale(resumed) == (ours.value, ours.steady)


def test_what_deepspeed_loaded_of_its_own_scale_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Just after an overflow, its own state says more than the checkpoint's."""
    engine = deepspeed_engine(3, monkeypatch)
    scaler_of(engine).update_scale(True)
    before = vars(scaler_of(engine)).copy()
    DeepSpeed.set_loss_scale(engine, *(DeepSpeed.loss_scale(engine) or (0.0, 0)))
    assert vars(scaler_of(engine)) == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss_chunk": 64}, "loss_chunk 64, which makes the head's gradients before the loss is scaled"),
        ({"parallel": {"tensor": 2}}, "parallel.tensor 2: loss scaling is done if the data alone are shared out"),
        (
            {"engine": "deepspeed", "device": "cpu"},
            "on which DeepSpeed has no fp16: set pretrain.train.engine to torch",
        ),
        ({"engine": "deepspeed", "zero_stage": 0}, "zero_stage 0, which adds gradients up in fp16"),
        ({"engine": "deepspeed", "spike_sigma": 6}, "would take a spike that is left out for an overflow"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes: dict[str, Any], words: str) -> None:
    config = train_settings(**{"precision": "fp16", "engine": "torch", **changes})
    settings = EngineSettings.of_pretraining(config)
    with pytest.raises(InputError) as caught:
        checks.check_fp16(settings, config.device, "pretrain.train.{}".format)
    assert str(caught.value).startswith("pretrain.train.precision is fp16") and words in str(caught.value)
    checks.check_fp16(replace(settings, precision="bf16"), config.device, "pretrain.train.{}".format)


def test_a_note_says_how_often() -> None:
    state = (2.0**12, 3)
    assert loss_scale.report_notes(state, 0, 10) == [] and "4 of 10 updates" in loss_scale.report_notes(state, 4, 10)[0]
    assert train_settings().loss_scale_power == 16


def test_a_count_past_the_window_doubles_too() -> None:
    """DeepSpeed's checkpoints by an earlier version may have one."""
    scale = loss_scale.LossScale(4, 10)
    scale.steady = 15
    scale.update(False)
    assert (scale.value, scale.steady) == (32.0, 0)
