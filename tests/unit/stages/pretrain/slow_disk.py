"""crawl2llm.stages.pretrain.train on a disk on which process 0 needs DELAY seconds more for a checkpoint, one by default, and keeps times.

With FAILS=1 in the environment there is no space left for what process 1 writes.
"""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

from crawl2llm.stages.pretrain import train
from crawl2llm.training.engines.checkpoint_staging import StagedState
from crawl2llm.training.run import Run

RANK = os.environ["RANK"]
write_of = StagedState.write


def note(what: str) -> None:
    with Path(f"times-{RANK}.jsonl").open("a") as handle:
        handle.write(json.dumps([time.time(), what]) + "\n")


def write(self: StagedState, folder: Path) -> list[str]:
    note(f"writes {folder.name}")
    if RANK == "0":
        time.sleep(float(os.environ.get("DELAY", 1)))
    elif os.environ.get("FAILS"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    found = write_of(self, folder)
    note(f"wrote {folder.name}")
    return found


def keep_times(kind: Any) -> None:
    """Of the steps and checkpoints of a training whose class this is."""
    step_of = kind.take_step

    def step(self: Any, state: Any, batch: Any) -> None:
        note(f"step {state.step}")
        step_of(self, state, batch)

    StagedState.write, kind.take_step = write, step  # type: ignore[method-assign]


if __name__ == "__main__":
    keep_times(Run)
    raise SystemExit(train.main())
