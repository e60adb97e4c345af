"""A program that stops as training does: SIGUSR1 ends its first start with status 85, its second start is done at once.

    python -m tests.slurm.stopping FOLDER

Each start appends a line to FOLDER/starts.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(85))
    with (folder / "starts").open("a") as handle:
        handle.write(f"{os.environ.get('SLURM_STEP_ID', 'no step')}\n")
    if len((folder / "starts").read_text().splitlines()) == 1:
        time.sleep(300)
