"""benchmarks.machine: processes that train together end together, and an error tells which one failed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks.machine import group_of
from crawl2llm.training.processes import environments, free_port

# Process 0 waits in torch's rendezvous for the others, for a minute at most, so that a test that fails ends too.
TOGETHER = """
import os, sys, pathlib, time
from datetime import timedelta
rank = os.environ["RANK"]
pathlib.Path(sys.argv[1], rank).write_text(str(os.getpid()))
if rank == "1":
    sys.stderr.write("x" * 2**20 + "\\n" * (sys.argv[2] == "talks"))  # more than a pipe holds
    if sys.argv[2] == "fails":
        while not pathlib.Path(sys.argv[1], "0").exists():  # else process 0 may be ended before it has said who it is
            time.sleep(0.01)
        raise ValueError("no such shard")
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
dist.barrier()
print("not the result")
print('{"rank": %s}' % rank)
"""


def together(folder: Path, how: str) -> dict[str, int]:
    command = [sys.executable, "-c", TOGETHER, str(folder), how]
    return group_of(command, environments(0, 1, 2, "127.0.0.1", free_port()))


def test_one_that_fails_ends_the_others_that_wait_for_it(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match=r"(?s)rank 1 of 2 ended with 1:\n.*ValueError: no such shard$"):
        together(tmp_path, "fails")
    assert time.monotonic() - begun < 30
    for rank in ("0", "1"):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / rank).read_text()), 0)


def test_one_that_writes_much_on_stderr_does_not_wait_for_a_reader(tmp_path: Path) -> None:
    assert together(tmp_path, "talks") == {"rank": 0}


def test_the_first_that_fails_is_named_and_not_those_that_fail_of_it() -> None:
    dies = "import os, time; time.sleep(1 - int(os.environ['RANK'])); raise SystemExit('rank ' + os.environ['RANK'])"
    with pytest.raises(RuntimeError, match=r"rank 1 of 2 ended with 1:\nrank 1$"):
        group_of([sys.executable, "-c", dies], [{"RANK": "0"}, {"RANK": "1"}])


def test_no_result() -> None:
    with pytest.raises(RuntimeError, match="rank 0 printed no result"):
        group_of([sys.executable, "-c", ""], [{}])
