"""How many cores this process may use: of a SLURM job or a container, fewer than the machine has."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """The cores that the system lets this process run on; all of the machine where it does not say, as macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
