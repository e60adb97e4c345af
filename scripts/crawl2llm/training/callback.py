"""The interface of what happens around the steps of a training."""

from __future__ import annotations

from crawl2llm.training.run_state import RunState


class Callback:
    """Does nothing. A callback overrides the methods that it needs; training/loop.py calls them, in the order of its list.

    All processes call them together. A callback that only process 0 has in its list makes no collective call.
    """

    def before_training(self, state: RunState) -> None:
        """Before the first step of this start, and before the first one after a roll back."""

    def before_step(self, state: RunState) -> None:
        """Before the batch of `state.step` is read."""

    def before_update(self, state: RunState) -> None:
        """When the batch is there."""

    def after_step(self, state: RunState) -> None:
        """After the update. Sets `stop`, `over`, `goes_back` or `save` of the state to say what comes next."""

    def before_checkpoint(self, state: RunState) -> None:
        """Before a checkpoint is written, which counts with what is on the disk by then."""

    def after_training(self, state: RunState) -> None:
        """After the last step, or an early stop; not after a signal. Called in the reverse order."""

    def close(self) -> None:
        """When the steps end, also for an error or a roll back. Called in the reverse order."""
