"""What the tests of pretrain.train do with its processes and results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for the launcher and check its exit status; returns what it wrote to stderr."""
    _, errors = process.communicate(timeout=900)
    assert process.returncode == status, errors
    return errors


def wait_for(process: subprocess.Popen[str], folder: Path, pattern: str) -> None:
    """Wait until a path below `folder` matches; fails where the process ends before."""
    deadline = time.monotonic() + 900
    while not any(folder.glob(pattern)):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
        time.sleep(0.002)


def kill(process: Any) -> None:
    """Kill the launcher and all that it started, which have to be at work: a run that is at its end cannot be killed."""
    assert process.poll() is None, process.communicate()[1]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def kill_after(start: Any, folder: Path, step: int, processes: int, changes: dict[str, Any], *options: str) -> None:
    """Start a training and kill it when the checkpoint of a step is there, before the next step is begun. start: the fixture."""
    program = "tests.unit.stages.pretrain.poisoned"
    process = start(folder, processes, changes, *options, program=program, HOLD=str(step + 1))
    wait_for(process, folder, f"checkpoints/*/step-{step:06d}")
    kill(process)
    assert not (folder / "out/manifest.json").exists()


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def same(one: Path, other: Path) -> None:
    """Weights, losses and manifest are equal byte for byte."""
    for name in ("model/model.safetensors", "losses.jsonl", "manifest.json"):
        assert (one / "out" / name).read_bytes() == (other / "out" / name).read_bytes(), name
