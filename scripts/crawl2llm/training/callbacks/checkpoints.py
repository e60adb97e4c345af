"""Decides after which steps a checkpoint is written."""

from __future__ import annotations

from collections.abc import Callable

from crawl2llm.training.callback import Callback
from crawl2llm.training.run_state import RunState


class Checkpoints(Callback):
    """Has a checkpoint written at a signal, at an early stop, and after the steps for which `is_due` says so."""

    def __init__(self, is_due: Callable[[int], bool]) -> None:
        self.is_due = is_due

    def before_step(self, state: RunState) -> None:
        state.save = False

    def after_step(self, state: RunState) -> None:
        state.save = state.save or state.stop or state.over or self.is_due(state.step)
