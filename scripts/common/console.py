"""Logging and progress: plain lines with a rate and the time left, on the terminal and in the step's log.

Several tasks share one terminal, so a line is written every few seconds instead of a bar redrawn in place.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

__tracked__ = False  # shows, never decides: see scripts/common/fingerprint.py

log = logging.getLogger("crawl2llm")


def setup(name: str, *files: Path) -> None:
    """Send the program's messages, headed by its step and task, to stderr and to the ends of `files`."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(file, mode="a", encoding="utf-8"))
    form = logging.Formatter(f"%(asctime)s {name}: %(message)s", "%H:%M:%S")
    for handler in handlers:
        handler.setFormatter(form)
    log.handlers[:] = handlers
    log.setLevel(logging.INFO)
    log.propagate = False
    logging.raiseExceptions = False  # a log that cannot be written must not bury the error that says why


def duration(seconds: float) -> str:
    """`75` → `1m15s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


class Progress:
    """Counts items and logs `12,000/40,000 documents, 3,100/s, 9s left` at most every `every` seconds."""

    def __init__(self, total: int | None, unit: str, every: float = 5.0, done: int = 0) -> None:
        self.total, self.unit, self.every = total, unit, every
        self.first = self.done = done
        self.start = self.shown = time.monotonic()

    def add(self, count: int = 1, note: str = "") -> None:
        """Count `count` more items; `note` is put behind the line when one is due."""
        self.done += count
        now = time.monotonic()
        if now - self.shown >= self.every:
            self.shown = now
            log.info("%s%s", self.line(now), f", {note}" if note else "")

    def line(self, now: float | None = None) -> str:
        """The line itself."""
        rate = (self.done - self.first) / max((now or time.monotonic()) - self.start, 1e-9)
        share = f"{self.done:,}/{self.total:,}" if self.total else f"{self.done:,}"
        left = f", {duration((self.total - self.done) / rate)} left" if self.total and rate > 0 else ""
        return f"{share} {self.unit}, {rate:,.{1 if rate < 10 else 0}f}/s{left}"
