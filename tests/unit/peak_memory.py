"""The largest memory that a process of a test has had."""

from __future__ import annotations

import re
from pathlib import Path


def peak_bytes() -> int:
    """Of this process alone: getrusage's maximum begins with that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024
