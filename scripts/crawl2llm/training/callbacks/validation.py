"""Measures the loss of held-out documents every `validate_every` steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crawl2llm.training import heartbeat
from crawl2llm.training.callback import Callback
from crawl2llm.training.metrics import Recorder
from crawl2llm.training.run_state import RunState


class Validation(Callback):
    """Validates after the steps for which `is_due` says so; validate: a collective call, None without held-out documents.

    keeps_best: whether the best one has a checkpoint.
    """

    def __init__(
        self, is_due: Callable[[int], bool], validate: Callable[[], dict[str, Any] | None], keeps_best: bool
    ) -> None:
        self.is_due, self.validate, self.keeps_best = is_due, validate, keeps_best

    def after_step(self, state: RunState) -> None:
        state.scores = None
        if not self.is_due(state.step):
            return
        heartbeat.set_phase("validation")
        with state.clock.pause():
            state.scores = self.validate()
        if state.scores:
            is_better = state.lowest is None or state.scores["loss"] < state.lowest
            state.lowest, state.stale = (state.scores["loss"], 0) if is_better else (state.lowest, state.stale + 1)
            state.save = state.save or (self.keeps_best and is_better)


class ValidationRows(Callback):
    """For process 0: writes what a validation found. last: the last step of the training."""

    def __init__(self, recorder: Recorder, last: int) -> None:
        self.recorder, self.last = recorder, last

    def after_step(self, state: RunState) -> None:
        if not state.scores:
            return
        with state.clock.pause():
            self.recorder.write_validation(state.step, self.last, state.scores, state.over)
