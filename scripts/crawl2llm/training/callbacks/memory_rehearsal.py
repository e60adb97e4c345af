"""Tries before the first step what needs memory later."""

from __future__ import annotations

from crawl2llm.training.callback import Callback
from crawl2llm.training.run import Run
from crawl2llm.training.run_state import RunState


class MemoryRehearsal(Callback):
    """Runs the largest batch of a validation: all that comes later than a second step is then known to have room."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def before_training(self, state: RunState) -> None:
        if state.done < (state.stopped or self.run.last_step):
            with self.run.room("a validation, tried before the first step"):
                self.run.rehearse_validation()
