"""Other programs: run to their end, and told with their last words where they fail."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.core.shard_pool import end_with

LINES = 6  # of what a program said last


def finished(command: list[str], what: str, **options: Any) -> None:
    """Run a program, which ends with this process, even where it is killed.

    options: of subprocess.run. Raises InputError with `what`, its status and its last lines where it fails.
    """
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        preexec_fn=partial(end_with, os.getpid()),
        **options,
    )
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-LINES:]
        raise InputError(f"{what}, status {done.returncode}: {' | '.join(said) or 'no word'}")
