"""One run at a time in a folder; the lock goes with its process, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crawl2llm.core.root import ROOT
from crawl2llm.core.run_lock import OPEN_LOCKS, RunInProgressError, take_lock

HOLDER = """
import sys, time
from pathlib import Path
from crawl2llm.core.run_lock import take_lock
take_lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_second_run_is_refused_until_the_first_is_gone_even_by_kill(tmp_path: Path) -> None:
    path = tmp_path / ".snakemake/run.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(RunInProgressError, match=f"process {holder.pid}"):
            take_lock(path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    take_lock(path)
    OPEN_LOCKS.pop().close()
