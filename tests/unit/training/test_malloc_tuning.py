"""glibc's heap as the launcher sets it: freed blocks stay, unless they are mapped or given back. Resident memory of real processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from crawl2llm.core.root import ROOT
from crawl2llm.training.processes import TUNABLES

PROGRAM = """
import sys
import numpy as np
from crawl2llm.training import malloc_tuning

def resident():  # MB
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

if "map" in sys.argv:
    malloc_tuning.map_large()
before = resident()
blocks = [np.ones(1 << 19) for _ in range(32)]  # 4 MB each
last = [np.ones(1 << 12) for _ in range(64)]  # small blocks above them, which keep the heap from shrinking
most = resident() - before
blocks.clear()
if "give back" in sys.argv:
    malloc_tuning.release_free_pages()
print(most, resident() - before)
"""
GLIBC = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None


@pytest.mark.skipif(not GLIBC, reason="no glibc")
@pytest.mark.parametrize(
    ("tunables", "words", "stays"),
    [
        (TUNABLES, [], True),
        (TUNABLES, ["map"], False),
        (TUNABLES, ["give back"], False),
        ("glibc.malloc.mmap_threshold=1073741824", ["map"], True),  # a person's own setting
    ],
)
def test_whether_freed_blocks_stay(tunables: str, words: list[str], stays: bool) -> None:
    own = {**os.environ, "GLIBC_TUNABLES": tunables, "PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, "-c", PROGRAM, *words], env=own, capture_output=True, text=True, check=True)
    most, left = map(float, out.stdout.split())
    assert 130 < most < 150
    assert left > 120 if stays else left < 20
