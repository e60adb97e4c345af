"""The callbacks that know the run: what they decide. ../test_rollback.py, ../test_early_stopping.py and others run whole trainings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from crawl2llm.training import metrics
from crawl2llm.training.callbacks.early_stop import EarlyStop, manifest_summary, report_notes
from crawl2llm.training.callbacks.memory_rehearsal import MemoryRehearsal
from crawl2llm.training.callbacks.process_stats import ProcessStats
from crawl2llm.training.callbacks.roll_back import RollBack
from crawl2llm.training.callbacks.skipped_steps import SkippedSteps
from crawl2llm.training.callbacks.speed import Speed
from crawl2llm.training.callbacks.tuning_rows import TuningRows
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.metrics import ROLL_BACK_KEY, Recorder
from crawl2llm.training.pretraining_settings import TrainSettings
from crawl2llm.training.spikes import SpikeDetector
from tests.unit.training.callbacks.conftest import state_after, update


def run_of(**attributes: Any) -> Any:
    """A run with what a callback reads of one."""
    return SimpleNamespace(rank=0, begun=0, last_step=100, **attributes)


@pytest.mark.parametrize(
    ("skipped", "rolled", "target"),
    [
        ([24], [], 0),  # one spike alone is no spike that stays
        ([24, 26], [], 20),
        ([20, 26], [], 10),  # step 20's own checkpoint has the spike behind it
        ([4, 26], [], 0),  # 4 is longer ago than the window
        ([24, 26], [{"to": 20}], 0),  # as often as allowed
        ([8, 9], [], 0),  # no checkpoint before it
    ],
)
def test_the_run_goes_back_before_the_first_of_several_spikes(
    skipped: list[int], rolled: list[dict[str, int]], target: int
) -> None:
    settings = SimpleNamespace(roll_backs=1, spike_window=20, roll_back_after=2, roll_back_every=10)
    state = state_after(skipped[-1], applied=False)
    state.skipped, state.rolled = skipped, list(rolled)
    roll_back = RollBack(run_of(settings=settings), None)
    assert roll_back.target_step(state) == target
    state.update = update(applied=True)
    assert roll_back.target_step(state) == 0
    state.update, state.overflowed = update(applied=False), True
    assert roll_back.target_step(state) == 0


def test_rows_of_a_roll_back_that_a_kill_undid_are_forgotten(recorder: Recorder, tmp_path: Path) -> None:
    for row in ({"step": 1, "loss": 2.0}, {"step": 1, ROLL_BACK_KEY: 1}):
        recorder.write_loss(row)
    RollBack(run_of(), recorder).before_training(state_after(0))
    assert metrics.read(tmp_path / metrics.LOSSES) == [{"step": 1, "loss": 2.0}]


def test_an_early_stop_waits_for_its_patience() -> None:
    run = run_of(wants_validation=lambda step: step % 5 == 0)
    stop, state = EarlyStop(run, 2), state_after(10)
    state.stale = 1
    assert stop.may_stop_after(state)
    stop.after_step(state)
    assert not state.over
    state.stale = 2
    state.step = 12  # not a step with a validation
    stop.after_step(state)
    assert not state.over
    state.step = 15
    stop.after_step(state)
    assert state.over and state.stopped == 15


def test_an_early_stop_is_reported() -> None:
    state = state_after(15)
    assert manifest_summary(state) == {} and report_notes(state, 100) == []
    state.best, state.stopped = 5, 15
    assert manifest_summary(state) == {"early_stop": {"after_step": 15, "best_step": 5}}
    assert "after step 15 of 100" in report_notes(state, 100)[0]


@pytest.mark.usefixtures("one_process")
def test_a_skipped_step_names_its_documents() -> None:
    settings = SimpleNamespace(max_skipped_steps=10)
    run = run_of(settings=settings, spikes=None, document_ids=lambda step: [f"document {step}"])
    state = state_after(3, applied=False, loss=float("nan"))
    state.row = {"step": 3}
    SkippedSteps(run).after_step(state)
    assert state.row == {"step": 3, "skipped": "loss", "reason": "not finite", "documents": ["document 3"]}
    state = state_after(4, applied=False)
    state.overflowed = True
    SkippedSteps(run).after_step(state)
    assert state.row | {"loss": 0} == {
        "step": 4,
        "loss": 0,
        "skipped": "gradient",
        "reason": "overflow",
        "documents": [],
    }


@pytest.mark.usefixtures("one_process")
def test_a_spike_says_how_far_it_is() -> None:
    detector = SpikeDetector(6, 40, [(2.0 + 0.01 * (step % 2), 1.0) for step in range(30)])
    assert detector.is_spike(9.0, 1.0)
    run = run_of(settings=SimpleNamespace(max_skipped_steps=10), spikes=detector, document_ids=lambda _: [])
    state = state_after(31, applied=False, loss=9.0)
    state.spiked = True
    SkippedSteps(run).after_step(state)
    assert (state.row["skipped"], state.row["reason"]) == ("loss", "spike") and state.row["deviations"] > 6


@pytest.mark.parametrize(("done", "stopped", "times"), [(0, 0, 1), (100, 0, 0), (40, 40, 0)])
def test_memory_is_rehearsed_if_a_step_is_left(done: int, stopped: int, times: int) -> None:
    tasks: list[str] = []

    @contextlib.contextmanager
    def room(task: str) -> Iterator[None]:
        tasks.append(task)
        yield

    state = state_after(0)
    state.done, state.stopped = done, stopped
    MemoryRehearsal(run_of(room=room, rehearse_validation=lambda: None)).before_training(state)
    assert len(tasks) == times


@pytest.mark.usefixtures("one_process")
def test_processes_are_measured_in_the_steps_that_are_logged() -> None:
    block = nn.Linear(64, 64)
    stats, state = (
        ProcessStats(lambda: [block], torch.device("cpu"), 2, 5, 2.0, lambda state: state.step == 3),
        state_after(0),
    )
    stats.before_training(state)
    counts = {}
    for state.step in range(1, 6):
        stats.before_step(state)
        stats.before_update(state)
        block(torch.ones(8, 64))
        stats.after_step(state)
        counts[state.step] = len(state.measures)
        if state.measures:
            assert state.measures[0]["compute_seconds"] > 0
            row = stats.metrics_row(state.step, state.measures, 1.0)
            assert row["slowest_rank"] == 0 and stats.labelled_measures(state.measures)[0][0]["rank"] == "0"
    assert counts == {1: 0, 2: 1, 3: 1, 4: 1, 5: 1}
    stats.close()
    assert not block._forward_hooks and not block._forward_pre_hooks


@pytest.mark.usefixtures("one_process")
def test_speed_has_a_row_of_the_logged_steps_and_of_an_early_end(recorder: Recorder, tmp_path: Path) -> None:
    settings = SimpleNamespace(log_every=2, precision="fp32")
    plan = SimpleNamespace(steps=100, tokens_until=lambda step: 64 * step)
    engine_settings = EngineSettings.of_pretraining(TrainSettings(warmup=0.1, learning_rate=0.01))
    run = run_of(
        settings=settings, plan=plan, device=torch.device("cpu"), processes=1, flops=1000,
        engine=SimpleNamespace(loss_scale=lambda: None), engine_settings=engine_settings,
    )  # fmt: skip
    stats = ProcessStats(lambda: [], run.device, settings.log_every, plan.steps, 2.0, lambda state: state.step == 5)
    speed, state = Speed(run, recorder, stats), state_after(0)
    callbacks = [stats, speed]
    for callback in callbacks:
        callback.before_training(state)
    for state.step in range(1, 6):
        stats.before_step(state)
        stats.before_update(state)
        for callback in callbacks:
            callback.after_step(state)
    speed.before_checkpoint(state)  # of a checkpoint within the training
    assert [row["step"] for row in metrics.read(tmp_path / metrics.METRICS)] == [2, 4]
    state.over = True
    speed.before_checkpoint(state)
    rows = metrics.read(tmp_path / metrics.METRICS)
    assert [(row["step"], row["tokens"]) for row in rows] == [(2, 128), (4, 256), (5, 320)]
    assert all(row["tokens_per_second"] > 0 and row["loss"] == 2.0 for row in rows)


def test_a_tuning_has_a_row_of_metrics_for_each_step(recorder: Recorder, tmp_path: Path) -> None:
    run = run_of(rate=0.1, extra_metrics={"kl": 0.5})
    rows = TuningRows(run, recorder)
    state = state_after(1)
    rows.before_training(state)
    rows.after_step(state)
    (row,) = metrics.read(tmp_path / metrics.METRICS)
    assert row | {"seconds": 0} == {
        "step": 1, "loss": 2.0, "learning_rate": 0.1, "grad_norm": 1.0, "seconds": 0, "skipped_steps": 0, "kl": 0.5,
    }  # fmt: skip
