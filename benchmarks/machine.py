"""What a benchmark ran on, for its JSON, and the time and memory of a command."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def versions(*packages: str) -> dict[str, str | None]:
    """Python's version and those of `packages`, None for one that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def processor() -> str:
    """The CPU's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def run(command: list[str], folder: Path, **environment: str) -> tuple[dict[str, float], str]:
    """(measures, output) of a command in `folder`; RuntimeError with its output where it fails.

    Measures: `cpu` seconds of the command and of all that it waited for, `clock` seconds, `peak_mb` of its largest process (10⁶ bytes).
    """
    with tempfile.TemporaryFile("w+") as said:
        start = time.perf_counter()
        started = subprocess.Popen(
            command, cwd=folder, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        clock = time.perf_counter() - start
        said.seek(0)
        output = said.read()
    if started.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {started.returncode}:\n{output}")
    measures = {"cpu": used.ru_utime + used.ru_stime, "clock": clock, "peak_mb": used.ru_maxrss * 1024 / 1e6}
    return measures, output
