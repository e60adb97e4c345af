"""crawl2llm.stages.pretrain.train, which writes down the windows of each step. Everything else is the program itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crawl2llm.stages.pretrain import train
from crawl2llm.training.run import Run

windows = Run.step_windows


def seen(self: Run, step: int) -> Any:
    found = windows(self, step)
    with Path("windows.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps([step, found.tolist()]) + "\n")
    return found


Run.step_windows = seen  # type: ignore[method-assign]

if __name__ == "__main__":
    raise SystemExit(train.main())
