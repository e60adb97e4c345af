"""The callbacks that need no run: phases, rows, the limit of skipped steps, checkpoints, validation, the EMA, a writer that fails."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from typing import Any

import pytest

from crawl2llm.training import group, heartbeat, metrics
from crawl2llm.training.async_checkpoints import AsyncWriter
from crawl2llm.training.callbacks.async_failures import AsyncFailures
from crawl2llm.training.callbacks.checkpoints import Checkpoints
from crawl2llm.training.callbacks.ema import UpdateEma
from crawl2llm.training.callbacks.loss_rows import LossRows, SyncRows
from crawl2llm.training.callbacks.phases import Phases
from crawl2llm.training.callbacks.skip_limit import SkipLimit
from crawl2llm.training.callbacks.validation import Validation, ValidationRows
from crawl2llm.training.checkpoint import CollectiveError
from crawl2llm.training.ema import update_weight
from crawl2llm.training.metrics import Recorder
from crawl2llm.training.run_state import RunState
from tests.unit.training.callbacks.conftest import state_after

SCORES = {"loss": 2.5, "bits_per_byte": 1.5, "by_source": {"web": {"bits_per_byte": 1.5}}}


@pytest.mark.usefixtures("one_process")
def test_phases_say_where_the_process_is_and_how_long_the_others_wait() -> None:
    phases, state = Phases("reading tokens", 30.0), state_after(7)
    phases.before_training(state)
    phases.before_step(state)
    assert heartbeat._now | {"least": 0} == {"step": 7, "phase": "reading tokens", "limit": 30.0, "least": 0}
    phases.before_checkpoint(state)
    assert heartbeat._now["phase"] == "checkpoint"
    phases.after_training(state)
    assert heartbeat._now["phase"] == "writing the model"
    assert heartbeat._now["limit"] == group.LONGEST_WAIT.total_seconds()


def test_rows_are_written_for_each_step_and_are_on_the_disk_before_a_checkpoint(
    recorder: Recorder, tmp_path: Path
) -> None:
    LossRows(recorder).after_step(state_after(1))
    SyncRows(recorder).before_checkpoint(state_after(1))
    assert metrics.read(tmp_path / metrics.LOSSES) == [{"step": 1, "loss": 2.0}]


def test_more_skipped_steps_than_allowed_end_the_training() -> None:
    limit, state = SkipLimit(1, lambda steps: f"skipped {steps}"), state_after(5, applied=False)
    state.skipped = [5]
    limit.after_step(state)
    state.skipped = [5, 6]
    with pytest.raises(CollectiveError, match=r"skipped \[5, 6\]"):
        limit.after_step(state)


@pytest.mark.parametrize(
    ("changes", "is_saved"),
    [({}, False), ({"step": 10}, True), ({"stop": True}, True), ({"over": True}, True), ({"save": True}, True)],
)
def test_a_checkpoint_is_due_by_step_signal_early_stop_or_wish(changes: dict[str, Any], is_saved: bool) -> None:
    checkpoints, state = Checkpoints(lambda step: step == 10), state_after(3)
    checkpoints.before_step(state)
    for name, value in changes.items():
        setattr(state, name, value)
    checkpoints.after_step(state)
    assert state.save is is_saved
    checkpoints.before_step(state)
    assert state.save is False


def test_a_validation_counts_how_long_it_is_no_better() -> None:
    losses = iter([3.0, 2.0, 2.5, 2.5])
    validation = Validation(lambda step: step % 2 == 0, lambda: SCORES | {"loss": next(losses)}, keeps_best=True)
    state, seen = RunState(), []
    for state.step in range(1, 9):
        state.save = False
        validation.after_step(state)
        seen.append((state.scores and state.scores["loss"], state.lowest, state.stale, state.save))
    assert seen[1::2] == [(3.0, 3.0, 0, True), (2.0, 2.0, 0, True), (2.5, 2.0, 1, False), (2.5, 2.0, 2, False)]
    assert {row[0] for row in seen[::2]} == {None}


def test_without_held_out_documents_nothing_is_best() -> None:
    state = state_after(4)
    Validation(lambda _: True, lambda: None, keeps_best=True).after_step(state)
    assert state.scores is None and state.lowest is None and not state.save


@pytest.mark.parametrize("over", [False, True])
def test_a_validation_has_its_row(recorder: Recorder, tmp_path: Path, over: bool) -> None:
    state = state_after(4)
    ValidationRows(recorder, 8).after_step(state)
    state.scores, state.over = SCORES, over
    ValidationRows(recorder, 8).after_step(state)
    (row,) = metrics.read(tmp_path / metrics.LOSSES)
    assert row == {"step": 4, "validation_loss": 2.5, "bits_per_byte": 1.5} | ({"stopped_early": True} if over else {})


def test_the_ema_moves_after_updates_that_were_made() -> None:
    class Weights:
        """Keeps how far the EMA went, as an engine would go."""

        moves: list[float] = []  # noqa: RUF012

        def update_ema(self, weight: float) -> None:
            self.moves.append(weight)

    ema = UpdateEma(Weights(), 0.9, contextlib.nullcontext)  # type: ignore[arg-type]
    for step, applied in ((1, True), (2, False), (3, True)):
        ema.after_step(state_after(step, applied))
    assert Weights.moves == [update_weight(0.9, 1), update_weight(0.9, 3)]


def test_a_checkpoint_that_could_not_be_written_ends_the_training(tmp_path: Path) -> None:
    writer = AsyncWriter(tmp_path)
    callback = AsyncFailures(writer)
    callback.before_update(state_after(1))

    def fail() -> None:
        raise OSError(errno.EIO, "broken")

    writer.writing = writer.thread.submit(fail)
    writer.thread.shutdown()
    with pytest.raises(OSError, match="broken"):
        callback.before_update(state_after(2))
