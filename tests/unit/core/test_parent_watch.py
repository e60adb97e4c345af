"""A task ends when the process that drives it is killed, and not before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crawl2llm.core import parent_watch
from crawl2llm.core.root import ROOT

TASK = "from crawl2llm.core import parent_watch; import time; parent_watch.watch_driver(); print('at work', flush=True); time.sleep({})"
DRIVER = """
import subprocess, sys, time
from crawl2llm.core import parent_watch
parent_watch.announce_driver()
subprocess.Popen([sys.executable, "-c", sys.argv[1]])
time.sleep(60)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")


def test_a_task_goes_with_its_driver() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, TASK.format(60)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    process.kill()
    process.wait()
    begin = time.monotonic()
    assert process.stdout.read() == ""  # the task has the other end of the pipe
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    "told", ["", "elsewhere 1 1", f"{os.uname().nodename} 1 no", f"{os.uname().nodename} 99999999 5"]
)
def test_a_driver_that_is_not_to_be_seen_is_not_waited_for(told: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), parent_watch.DRIVER_VARIABLE: told}
    done = subprocess.run([sys.executable, "-c", TASK.format(1)], env=environment, check=False)
    assert done.returncode == 0 != -signal.SIGTERM
