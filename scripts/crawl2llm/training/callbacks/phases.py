"""Says in the heartbeat what this process does, and how long the others wait for it."""

from __future__ import annotations

from crawl2llm.training import group, heartbeat
from crawl2llm.training.callback import Callback
from crawl2llm.training.run_state import RunState


class Phases(Callback):
    """The phases of a training. reading: what the heartbeat says while a batch is read. timeout: seconds that a step may wait."""

    def __init__(self, reading: str, timeout: float) -> None:
        self.reading, self.timeout = reading, timeout

    def before_training(self, state: RunState) -> None:
        group.begin_steps(self.timeout)

    def before_step(self, state: RunState) -> None:
        heartbeat.set_phase(self.reading, state.step)

    def before_checkpoint(self, state: RunState) -> None:
        heartbeat.set_phase("checkpoint")

    def after_training(self, state: RunState) -> None:
        group.wait_at_most(group.LONGEST_WAIT)
        heartbeat.set_phase("writing the model")
