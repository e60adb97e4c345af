"""How long a run may take to notice that a job is over."""

from __future__ import annotations

from typing import Any

LONGEST = 20.0  # seconds between two questions to the queue at most; one question is for all jobs


def limit_pause(executor: Any, longest: float = LONGEST) -> None:
    """Never let the executor wait longer than `longest` seconds between two looks at the queue.

    By itself (version 2.8.0) it waits 10 s longer after every look that found nothing new, up to 180 s, and has no option
    for it: 20, 30, 40, … s after each other, so that the end of a lone task of ten minutes is noticed after up to 110 s.
    """
    parent = type(executor)
    if not hasattr(parent, "next_seconds_between_status_checks"):
        return

    class BoundedPace(parent):  # type: ignore[valid-type, misc]
        @property
        def next_seconds_between_status_checks(self) -> float:
            return min(longest, parent.next_seconds_between_status_checks.fget(self))

        @next_seconds_between_status_checks.setter
        def next_seconds_between_status_checks(self, value: float) -> None:
            parent.next_seconds_between_status_checks.fset(self, value)

    executor.__class__ = BoundedPace
