"""One run at a time in a folder, by a lock of the kernel's: it goes with the process, so kill -9 leaves no stale lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from crawl2llm.core import run_folder

RUN = Path(".snakemake/run.lock")  # of a run, below its folder
OPEN_LOCKS: list[IO[str]] = []  # keeps the file open, and so the lock, until the process ends


class RunInProgressError(RuntimeError):
    """Another run works in this folder."""


def take_lock(path: Path) -> None:
    """Take the lock at `path` for the life of this process.

    Raises RunInProgressError, naming the process that has it, and RunFolderError where the file system keeps no locks or is not writable.
    """
    try:
        _lock_file(path)
    except OSError as error:
        raise run_folder.RunFolderError(run_folder.error_line(error, path)) from None


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """The same lock until the block ends."""
    take_lock(path)
    handle = OPEN_LOCKS[-1]
    try:
        yield
    finally:
        OPEN_LOCKS.remove(handle)
        handle.close()


def _lock_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        owner = handle.read().strip() or "unknown"
        handle.close()
        raise RunInProgressError(
            f"another run (process {owner}) works in {Path.cwd()}; wait for it, or stop it"
        ) from None
    except OSError as error:
        handle.close()
        raise run_folder.RunFolderError(f"{path}: {run_folder.NO_LOCKS} ({error.strerror})") from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    OPEN_LOCKS.append(handle)
