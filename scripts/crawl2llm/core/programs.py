"""Other programs: run to their end; if one fails, its last words are in the error."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.core.shard_pool import end_with_parent

LINES = 6  # of what a program said last


def run_program(command: list[str], label: str, **options: Any) -> None:
    """Run a program, which ends with this process, even where it is killed.

    options: of subprocess.run. Raises InputError with `label`, its status and its last lines where it fails.
    """
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        preexec_fn=partial(end_with_parent, os.getpid()),
        **options,
    )
    if process.returncode:
        last_lines = [line for line in (process.stdout + process.stderr).splitlines() if line.strip()][-LINES:]
        raise InputError(f"{label}, status {process.returncode}: {' | '.join(last_lines) or 'no word'}")
