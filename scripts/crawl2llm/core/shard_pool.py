"""The shards of a task, several at once: each in a process of its own, so that its memory ends with it and its failure has its name.

A process is forked from the task's, which has imported its libraries and computed nothing yet: a start costs milliseconds, and no
library's threads are running. It ends with the task's process, whatever ends that.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from crawl2llm.core import console

WORKED, NOTHING_TO_DO, FAILED = 0, 3, 1  # exit statuses of a shard's process: made, made before, not made
POLL_SECONDS = 0.5  # seconds between two looks at the progress of all
PR_SET_PDEATHSIG = 1  # prctl(2)


class ShardError(Exception):
    """Why a shard was not made, in words for a person."""


@dataclass
class ShardExit:
    """How a shard ended: the exit status of its process (negative: by a signal), and what it said of its failure."""

    status: int
    words: str = ""

    @property
    def has_result(self) -> bool:
        """Whether its result is there."""
        return self.status in (WORKED, NOTHING_TO_DO)


def end_with_parent(parent: int) -> None:
    """Let the kernel end this process when `parent` is gone: it would write the same files as the next start of the task."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # gone before it was asked
            os._exit(FAILED)


def _run_shard_process(do: Callable[[str], int], name: str, parent: int, pipe: Connection) -> None:
    """What the process of a shard does."""
    end_with_parent(parent)
    try:
        status = do(name)
    except ShardError as error:
        pipe.send_bytes(str(error).encode())
        status = FAILED
    except Exception as error:
        console.log_unexpected_error(type(error), error, error.__traceback__)
        pipe.send_bytes(f"{type(error).__name__}: {error}".encode())
        status = FAILED
    sys.exit(status)


def run_shards(
    names: list[str], processes: int, do: Callable[[str], int], look: Callable[[], None]
) -> dict[str, ShardExit]:
    """Call `do(name)` for every shard, `processes` at once; how each ended that was begun.

    `do` returns WORKED or NOTHING, or raises Failed. After a failure those that run end their work, and no other is begun.
    `look` is called between two looks at them.
    """
    context = multiprocessing.get_context("fork")
    waiting, exits = deque(names), dict[str, ShardExit]()
    running: dict[Any, tuple[str, BaseProcess, Connection]] = {}  # by sentinel
    while running or waiting:
        while waiting and len(running) < processes:
            name = waiting.popleft()
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_run_shard_process, args=(do, name, os.getpid(), sender), daemon=True)
            process.start()
            sender.close()
            running[process.sentinel] = (name, process, receiver)
        for sentinel in wait(list(running), POLL_SECONDS):
            name, child, receiver = running.pop(sentinel)
            child.join()
            failure = receiver.recv_bytes().decode() if child.exitcode == FAILED and receiver.poll() else ""
            exits[name] = ShardExit(FAILED if child.exitcode is None else child.exitcode, failure)
            receiver.close()
            if not exits[name].has_result:
                waiting.clear()
        look()
    return exits
