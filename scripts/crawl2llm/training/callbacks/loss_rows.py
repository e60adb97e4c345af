"""Writes losses.jsonl, a row for each step."""

from __future__ import annotations

from crawl2llm.training.callback import Callback
from crawl2llm.training.metrics import Recorder
from crawl2llm.training.run_state import RunState


class LossRows(Callback):
    """For process 0. A checkpoint that is complete has all its rows."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def after_step(self, state: RunState) -> None:
        self.recorder.write_loss(state.row)


class SyncRows(Callback):
    """For process 0, after all that writes rows before a checkpoint."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def before_checkpoint(self, state: RunState) -> None:
        self.recorder.sync()
