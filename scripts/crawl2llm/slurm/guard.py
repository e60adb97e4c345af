"""No two copies of a job: a run that was killed left its jobs in the queue, and they go before new ones are submitted.

Snakemake forgets its jobs when it is killed (kill -9, the login node goes down), SLURM does not. What such a job writes is
of no use: Snakemake marks a task as done only itself. So the next run cancels it, waits until its processes are gone,
and submits it again; training resumes from its checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from crawl2llm.core.retries import SilentSlurmError, SlurmError, ask_slurm
from crawl2llm.slurm import queue

DRIVER_FILE = Path(".snakemake/slurm-driver.json")  # below a run's folder: who drives its jobs
BEAT_SECONDS = 20.0  # seconds between two signs of life of a run
DEAD_SECONDS = 120.0  # seconds without one after which a run on another login node counts as dead


class GuardError(RuntimeError):
    """Submitting now could give two copies of a job; the message says what to do."""


def seconds_since_written(path: Path) -> float:
    """Seconds since `path` was written, by the file system's own clock (that of a file server may be off)."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".now") as probe:
        return Path(probe.name).stat().st_mtime - path.stat().st_mtime


def check_driver(path: Path, host: str | None = None) -> None:
    """Raise GuardError while a run on another host drives the folder's jobs, by what it says in `path`, and where that cannot be read:
    it does not say that there is no other run.
    """
    host = host or socket.gethostname()
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
        if owner["host"] != host and (seconds := seconds_since_written(path)) < DEAD_SECONDS:
            raise GuardError(
                f"a run on {owner['host']} (process {owner['pid']}) works in {Path.cwd()} and was alive {seconds:.0f} s ago; "
                f"stop it there, or wait {DEAD_SECONDS:.0f} s if it is dead"
            )
    except (FileNotFoundError, ValueError, KeyError):
        pass  # nobody
    except OSError as error:
        raise GuardError(f"{path} cannot be read, and so whether another run works here: {error}") from None


def claim_folder(path: Path, host: str | None = None) -> None:
    """Say in `path` that this process drives the folder's jobs, and keep saying it until it ends.

    A second run on the same host is refused by a kernel lock (core/run_lock.py), which not every cluster's file system
    carries to other hosts; this tells login nodes apart. Raises GuardError as `check_driver`.
    """
    host = host or socket.gethostname()
    check_driver(path, host)
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}.{os.getpid()}")  # a reader never meets half of it
    whole.write_text(json.dumps({"host": host, "pid": os.getpid()}), encoding="utf-8")
    whole.replace(path)

    def keep_beating() -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            with contextlib.suppress(OSError):
                path.touch()

    threading.Thread(target=keep_beating, name="guard", daemon=True).start()


def clear_queue(folder: Path, tell: Callable[[str], None], patience: float = 300.0) -> list[queue.Job]:
    """Cancel this folder's jobs in the queue, all of a dead run, and wait until SLURM has ended them.

    Returns the jobs. Raises GuardError if some are still there after `patience` seconds (a node that hangs).
    """
    jobs = queue.read_jobs(folder)
    if not jobs:
        return []
    for job in jobs:
        tell(f"job {job.id} ({job.rule} {job.task}, {job.state.lower()}) is left from a run that was killed: cancelled")
    ids = {job.id for job in jobs}
    try:
        ask_slurm("scancel", *sorted(ids))
    except SilentSlurmError:
        raise
    except SlurmError as error:  # one that has just ended cannot be cancelled; what is left is seen below
        tell(str(error))
    end = time.monotonic() + patience
    while remaining := [job for job in queue.read_jobs(folder) if job.id in ids]:
        if time.monotonic() > end:
            names = ", ".join(
                f"{job.id} ({job.rule} {job.task}, {job.state.lower()} on {job.where})" for job in remaining
            )
            raise GuardError(
                f"cancelled {patience:.0f} s ago and still there: {names}. A second copy could write the same files: "
                "wait until squeue shows them no more, or ask the cluster's administrators"
            )
        time.sleep(0.5)
    return jobs
