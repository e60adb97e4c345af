"""Ends a training with too many skipped steps."""

from __future__ import annotations

from collections.abc import Callable

from crawl2llm.training.callback import Callback
from crawl2llm.training.checkpoint import CollectiveError
from crawl2llm.training.run_state import RunState


class SkipLimit(Callback):
    """Raises CollectiveError if more than `most` steps were skipped. error_text: the message about these steps."""

    def __init__(self, most: int, error_text: Callable[[list[int]], str]) -> None:
        self.most, self.error_text = most, error_text

    def after_step(self, state: RunState) -> None:
        if len(state.skipped) > self.most:
            raise CollectiveError(self.error_text(state.skipped))
