"""Where memory runs out in a training: what it was doing, and the changes after which it takes clearly less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from scripts.training import memory
from scripts.workflow.errors import InputError

LESS = 0.85  # of the estimate, which may be so far from the peak (tests/unit/training/test_peaks.py)
HOST = "DefaultCPUAllocator"  # in torch's message where a CPU's memory is out: no class of its own


@contextmanager
def enough(
    what: str, shape: memory.Shape, settings: dict[str, Any], placement: dict[str, Any], cuda: bool
) -> Iterator[None]:
    """Turns torch's error into InputError with what to change; what: of a run, in words. The rest as for `memory.parts`."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and HOST not in str(error):
            raise
        estimate = sum(memory.parts(shape, settings, placement, cuda).values())
        changes = memory.changes(shape, settings, placement, LESS * estimate, 1, cuda)
        said = str(error).strip().partition("\n")[0]
        raise InputError(
            f"memory ran out in {what} ({said}); estimated were {memory.gigabytes(estimate)} for each process: {', or '.join(changes)}"
        ) from error
