"""The time of a training: what is in `pause`, validations and checkpoints, does not count."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Seconds since it was made, without pauses."""

    def __init__(self) -> None:
        self.start_time = self.lap_time = time.monotonic()
        self.pauses = 0.0

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """A part of the loop that does not train."""
        before = time.monotonic()
        yield
        pause = time.monotonic() - before
        self.start_time += pause
        self.lap_time += pause
        self.pauses += pause

    @property
    def training_seconds(self) -> float:
        """Seconds of training."""
        return time.monotonic() - self.start_time

    @property
    def total_seconds(self) -> float:
        """Seconds, pauses included."""
        return self.training_seconds + self.pauses

    def lap(self) -> float:
        """Seconds of training since the last lap."""
        now = time.monotonic()
        since, self.lap_time = now - self.lap_time, now
        return since
