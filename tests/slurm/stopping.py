"""A program that stops as training does: SIGUSR1 ends its first start with status 85, its second start is done at once.

    python -m tests.slurm.stopping FOLDER

Each start on a node appends a line to FOLDER/starts-NODE; the second node of a job ends two seconds after the first.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from crawl2llm.training.processes import RESUBMIT, on_stop_signal

if __name__ == "__main__":
    node = os.environ.get("SLURM_PROCID", "0")
    starts, signals = Path(sys.argv[1]) / f"starts-{node}", list[int]()
    on_stop_signal(lambda number, _: signals.append(number))
    with starts.open("a") as handle:
        handle.write(f"{os.environ.get('SLURM_STEP_ID', 'no step')}\n")
    while len(starts.read_text().splitlines()) == 1:
        time.sleep(0.1)
        if signals:
            time.sleep(2 * int(node))
            sys.exit(RESUBMIT)
