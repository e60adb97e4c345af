"""A run's folder that cannot be worked in, in one line with the way out: read-only, somebody else's, a full disk, no locks."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

FOLDER_HINT = "start in a folder that can be written (--directory DIR), or make this one so"
SPACE_HINT = "free some space, then run again: what is finished is kept"
HINTS = {  # the system's error → what to do
    errno.ENOSPC: SPACE_HINT,
    errno.EDQUOT: SPACE_HINT,
    errno.EROFS: FOLDER_HINT,
    errno.EACCES: FOLDER_HINT,
    errno.EPERM: FOLDER_HINT,
}
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # of a disk, whatever is done to which file
NO_LOCKS = (
    "this file system keeps no locks (flock), which keep two runs in one folder apart: start in a folder on another disk "
    "(--directory DIR), or have this one mounted with them (Lustre: -o flock; NFS: without nolock)"
)
PROBE = 1 << 16  # bytes that are written to see whether there is room: a quota is in no other answer
# How Snakemake shows an error of the system: within a sentence, with its place in the code, or as a traceback.
ERRNO_PATTERN = re.compile(r"\[Errno (\d+)\] [^\n:()]*(?:: '([^'\n]*)')?")


def search_hint(path: Path | str) -> str:
    """What an error says after a path at which nothing was found: where it was looked for, and what to do; "" if it is absolute."""
    if Path(path).is_absolute():
        return ""
    return (
        f" (a relative path is looked for in the folder of the run, {Path.cwd()}: name the absolute path, or put the files, or a link "
        "to them, there)"
    )


class RunFolderError(OSError):
    """A folder that no run can work in; the message says why, and what to do."""


def errno_line(number: int, place: Path | str) -> str:
    """An error of the system, of those that HINTS has, at a place where a run writes."""
    return f"{place}: {os.strerror(number)}: {HINTS[number]}"


def error_line(error: OSError, place: Path | str) -> str:
    """An error of the system where a run writes, in one line; as it is if nothing is known of it."""
    return errno_line(error.errno, error.filename or place) if error.errno in HINTS else str(error)


def check_writable(folder: Path) -> None:
    """Write into a run's folder and remove it again, as a plan does too. Raises RunFolderError."""
    snakemake_folder = folder.absolute() / ".snakemake"
    probe, existed = snakemake_folder / f".probe.{os.getpid()}", snakemake_folder.is_dir()
    try:
        snakemake_folder.mkdir(exist_ok=True)
        with probe.open("wb") as handle:
            handle.write(bytes(PROBE))
    except OSError as error:
        raise RunFolderError(error_line(error, snakemake_folder)) from None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            if not existed:
                snakemake_folder.rmdir()


def explain_disk_error(text: str) -> str:
    """What Snakemake says of an error of the system, as one line with the way out; "" where it says something else."""
    for number, name in ERRNO_PATTERN.findall(text):
        if int(number) in DISK_ERRORS:
            return errno_line(int(number), name or Path.cwd())
    return ""
