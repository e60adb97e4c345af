"""stages/pretrain/train.py, whose process 1 takes 100 ms more in the second block's forward pass. All else is the program itself."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawl2llm.stages.pretrain import train
from crawl2llm.training import engine, metrics
from crawl2llm.training.run import Run

init = Run.__init__
show = metrics.Recorder.write_metrics


def slower(forward: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*args: Any, **more: Any) -> Any:
        time.sleep(0.1)
        return forward(*args, **more)

    return slow


def begun(self: Run, *rest: Any) -> None:
    init(self, *rest)
    if os.environ["RANK"] == "1":
        block = engine.Engine.decoder_layers(self.engine)[1]
        block.forward = slower(block.forward)  # type: ignore[method-assign]


def shown(self: metrics.Recorder, *rest: Any) -> None:
    """Keep what the page shows after each row."""
    show(self, *rest)
    if self.exporter.server:
        port = self.exporter.server.server_port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            Path("page").write_bytes(page.read())


Run.__init__ = begun  # type: ignore[method-assign]
metrics.Recorder.write_metrics = shown  # type: ignore[method-assign]

if __name__ == "__main__":
    raise SystemExit(train.main())
