"""What a benchmark ran on, for its JSON; the time and memory of a command; and processes that train together."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import tempfile
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from crawl2llm.core.root import ROOT

TAIL = 12  # lines of its stderr that tell why a process failed


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


def group_of(command: list[str], places: list[dict[str, str]]) -> dict[str, Any]:
    """The JSON object that process 0 prints last, of a command that runs once for each place, all at the same time.

    places: the variables of each process (training/processes.py, `environments`), in the order of the ranks. Where one fails
    the others are killed, since they may wait for it without end: RuntimeError with its rank and its last lines. All are ended
    when this returns or raises.
    """
    ended: SimpleQueue[tuple[int, int]] = SimpleQueue()  # (rank, exit status), in the order in which they end
    with contextlib.ExitStack() as stack:
        # Files and not pipes: nobody reads while they run, and a full pipe would hold its writer up.
        said, errors = (
            [stack.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in places] for _ in range(2)
        )
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank, place in enumerate(places):
                process = subprocess.Popen(
                    command, cwd=ROOT, env={**os.environ, **place}, stdout=said[rank], stderr=errors[rank]
                )
                started.append(process)
                threading.Thread(target=lambda r=rank, p=process: ended.put((r, p.wait())), daemon=True).start()
            for _ in places:
                rank, status = ended.get()
                if status:
                    last = "\n".join(_lines(errors[rank])[-TAIL:])
                    raise RuntimeError(
                        f"{' '.join(command)}: rank {rank} of {len(places)} ended with {status}:\n{last}"
                    )
        finally:
            for process in started:
                process.kill()
            for process in started:
                process.wait()
        printed = _lines(said[0])
    if not printed:
        raise RuntimeError(f"{' '.join(command)}: rank 0 printed no result")
    return dict(json.loads(printed[-1]))


def _lines(stream: IO[str]) -> list[str]:
    stream.seek(0)
    return stream.read().splitlines()
