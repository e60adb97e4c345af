"""What the tests of pretrain.train do with its processes and results."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for the launcher and check its exit status; returns what it wrote to stderr."""
    _, errors = process.communicate(timeout=240)
    assert process.returncode == status, errors
    return errors


def wait_for(process: subprocess.Popen[str], folder: Path, pattern: str) -> None:
    """Wait until a path below `folder` matches; fails where the process ends before."""
    deadline = time.monotonic() + 120
    while not any(folder.glob(pattern)):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
        time.sleep(0.002)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def same(one: Path, other: Path) -> None:
    """Weights, losses and manifest are equal byte for byte."""
    for name in ("model/model.safetensors", "losses.jsonl", "manifest.json"):
        assert (one / "out" / name).read_bytes() == (other / "out" / name).read_bytes(), name
