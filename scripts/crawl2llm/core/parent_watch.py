"""A task ends when the Snakemake that started it is gone.

A Snakemake that is killed cannot end its tasks, and the next run would write the same files beside them.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from pathlib import Path

from crawl2llm.core.console import log

DRIVER_VARIABLE = "CRAWL2LLM_DRIVER"  # environment: host, process number and start of the Snakemake that starts tasks
POLL_SECONDS = 0.5  # seconds between two looks; a Snakemake takes longer to start


def process_start_ticks(process: int) -> str:
    """When a process was started, in clock ticks since the machine was; "" if there is none, or no /proc."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def announce_driver() -> None:
    """This process is the driver of all that it starts."""
    os.environ[DRIVER_VARIABLE] = f"{platform.node()} {os.getpid()} {process_start_ticks(os.getpid())}"


def watch_driver() -> None:
    """Send this process SIGTERM as soon as its driver is gone; nothing if no driver of this host is to be seen."""
    host, _, rest = os.environ.get(DRIVER_VARIABLE, "").partition(" ")
    number, _, start = rest.partition(" ")
    if host != platform.node() or not start or process_start_ticks(int(number)) != start:
        return

    def end_with_driver() -> None:
        while process_start_ticks(int(number)) == start:
            time.sleep(POLL_SECONDS)
        log.info("Snakemake (process %s) is gone, so this task ends; start the same command again", number)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_driver, daemon=True).start()
