"""What a program writes into its log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from crawl2llm.core import console

ROOT = Path(console.__file__).resolve().parents[3]


def logged(folder: Path, code: str) -> tuple[list[str], list[str]]:
    """(lines of the log, lines of stderr) of a program with this code."""
    log = folder / "x.log"
    head = (
        "from pathlib import Path; from crawl2llm.core.console import log, set_up_logging; "
        f"set_up_logging('a.b 00001', Path({str(log)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{head}\n{code}"], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return log.read_text(encoding="utf-8").splitlines(), done.stderr.splitlines()


def test_a_warning_is_called_one(tmp_path: Path) -> None:
    log, stderr = logged(tmp_path, "log.warning('b is %s', 'odd'); log.info('fine')")
    assert [line[9:] for line in log] == ["a.b 00001: warning: b is odd", "a.b 00001: fine"]
    assert stderr == log


def test_an_unexpected_error_is_in_the_log_with_its_traceback(tmp_path: Path) -> None:
    log, stderr = logged(tmp_path, "raise ValueError('odd')")
    assert log[-1].endswith("a.b 00001: error: ValueError: odd")
    assert any("Traceback (most recent call last)" in line for line in log)
    assert stderr == log
