"""Every test: `python -m tests [options of pytest]`.

Those on a SLURM cluster mostly wait, so a second pytest runs them beside the others; what it prints comes last.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import SHARED

SLURM = "tests/slurm"


def main(options: list[str]) -> int:
    """Run both; returns 0 where both succeed."""
    with tempfile.TemporaryDirectory(prefix="crawl2llm-tests-") as shared, Path(shared, "slurm").open("w+") as printed:
        os.environ[SHARED] = shared
        print(f"{SLURM} runs beside the other tests; what it prints comes last", flush=True)
        beside = subprocess.Popen(
            [sys.executable, "-m", "pytest", SLURM, *options], stdout=printed, stderr=subprocess.STDOUT
        )
        here = pytest.main(["tests", f"--ignore={SLURM}", *options])
        if here == pytest.ExitCode.INTERRUPTED:
            beside.send_signal(signal.SIGINT)
        there = beside.wait()
        print(f"\n{SLURM}:\n{Path(printed.name).read_text(encoding='utf-8', errors='replace')}", flush=True)
    return int(here or there)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
