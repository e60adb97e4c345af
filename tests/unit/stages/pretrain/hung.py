"""stages/pretrain/train.py, whose last process sleeps in the forward pass of step 6 for ever. Everything else is the program itself."""

from __future__ import annotations

import os
import time
from typing import Any

from crawl2llm.stages.pretrain import train
from crawl2llm.training.run import Run
from crawl2llm.training.run_state import RunState

LAST = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
step_of = Run.take_step


def waits_for_a_lock() -> None:
    time.sleep(3600)


def step(self: Run, state: RunState, batch: Any) -> None:
    if LAST and state.step == 6:
        self.engine.model.register_forward_pre_hook(lambda *_: waits_for_a_lock())
    step_of(self, state, batch)


Run.take_step = step  # type: ignore[method-assign]

if __name__ == "__main__":
    raise SystemExit(train.main())
