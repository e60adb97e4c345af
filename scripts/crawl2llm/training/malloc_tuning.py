"""glibc's heap in a training on a CPU: large blocks mapped on their own, and what is free given back to the system.

The launcher has all blocks come from the heap (training/processes.py), which is faster. Where blocks of very different sizes
come and go, holes stay that no other block fits into. docs/memory.md has what was measured.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from crawl2llm.training.processes import TUNABLES

M_MMAP_THRESHOLD = -3  # malloc.h
MAPPED_BYTES = 1 << 20  # bytes of the smallest block that `map_large` has mapped


def _glibc_function(name: str) -> Any:
    """A function of the C library; None if it has none of that name, as musl and macOS."""
    return getattr(ctypes.CDLL(None), name, None)


def map_large() -> None:
    """Have blocks of MAPPED_BYTES and more mapped from now on, where the launcher's setting is in force, and not a person's."""
    if os.environ.get("GLIBC_TUNABLES") == TUNABLES and (function := _glibc_function("mallopt")):
        function(M_MMAP_THRESHOLD, MAPPED_BYTES)


def release_free_pages() -> None:
    """Give free pages of the heap back to the system."""
    if function := _glibc_function("malloc_trim"):
        function(0)
