"""Ends a training if a checkpoint cannot be written in the background (training/async_checkpoints.py)."""

from __future__ import annotations

from crawl2llm.training.async_checkpoints import AsyncWriter
from crawl2llm.training.callback import Callback
from crawl2llm.training.run_state import RunState


class AsyncFailures(Callback):
    """Raises what went wrong with the writing before the next update: OSError if the disk is full."""

    def __init__(self, writer: AsyncWriter) -> None:
        self.writer = writer

    def before_update(self, state: RunState) -> None:
        self.writer.raise_failure()
