"""A run's folder that cannot be worked in, in one line with the way out: read-only, somebody else's, a full disk, no locks."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

ELSEWHERE = "start in a folder that can be written (--directory DIR), or make this one so"
ROOM = "free some space, then run again: what is finished is kept"
WAYS = {  # the system's error → what to do
    errno.ENOSPC: ROOM,
    errno.EDQUOT: ROOM,
    errno.EROFS: ELSEWHERE,
    errno.EACCES: ELSEWHERE,
    errno.EPERM: ELSEWHERE,
}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # of a disk, whatever is done to which file
NO_LOCKS = (
    "this file system keeps no locks (flock), which keep two runs in one folder apart: start in a folder on another disk "
    "(--directory DIR), or have this one mounted with them (Lustre: -o flock; NFS: without nolock)"
)
PROBE = 1 << 16  # bytes that are written to see whether there is room: a quota is in no other answer
# How Snakemake shows an error of the system: within a sentence, with its place in the code, or as a traceback.
SHOWN = re.compile(r"\[Errno (\d+)\] [^\n:()]*(?:: '([^'\n]*)')?")


def search_hint(path: Path | str) -> str:
    """What an error says after a path at which nothing was found: where it was looked for, and what to do; "" if it is absolute."""
    if Path(path).is_absolute():
        return ""
    return (
        f" (a relative path is looked for in the folder of the run, {Path.cwd()}: name the absolute path, or put the files, or a link "
        "to them, there)"
    )


class Unusable(OSError):
    """A folder that no run can work in; the message says why, and what to do."""


def line(number: int, place: Path | str) -> str:
    """An error of the system, of those that WAYS has, at a place where a run writes."""
    return f"{place}: {os.strerror(number)}: {WAYS[number]}"


def words(error: OSError, place: Path | str) -> str:
    """An error of the system where a run writes, in one line; as it is if nothing is known of it."""
    return line(error.errno, error.filename or place) if error.errno in WAYS else str(error)


def check(folder: Path) -> None:
    """Write into a run's folder and remove it again, as a plan does too. Raises Unusable."""
    own = folder.absolute() / ".snakemake"
    probe, there = own / f".probe.{os.getpid()}", own.is_dir()
    try:
        own.mkdir(exist_ok=True)
        with probe.open("wb") as handle:
            handle.write(bytes(PROBE))
    except OSError as error:
        raise Unusable(words(error, own)) from None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            if not there:
                own.rmdir()


def explain(text: str) -> str:
    """What Snakemake says of an error of the system, as one line with the way out; "" where it says something else."""
    for number, name in SHOWN.findall(text):
        if int(number) in FULL:
            return line(int(number), name or Path.cwd())
    return ""
