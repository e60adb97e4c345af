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

WORKED, NOTHING, FAILED = 0, 3, 1  # exit statuses of a shard's process: made, made before, not made
LOOK = 0.5  # seconds between two looks at the progress of all
PR_SET_PDEATHSIG = 1  # prctl(2)


class Failed(Exception):
    """Why a shard was not made, in words for a person."""


@dataclass
class Ended:
    """How a shard ended: the exit status of its process (negative: by a signal), and what it said of its failure."""

    status: int
    words: str = ""

    @property
    def made(self) -> bool:
        """Whether its result is there."""
        return self.status in (WORKED, NOTHING)


def end_with(parent: int) -> None:
    """Let the kernel end this process when `parent` is gone: it would write the same files as the next start of the task."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # gone before it was asked
            os._exit(FAILED)


def _process(do: Callable[[str], int], name: str, parent: int, words: Connection) -> None:
    """What the process of a shard does."""
    end_with(parent)
    try:
        status = do(name)
    except Failed as error:
        words.send_bytes(str(error).encode())
        status = FAILED
    except Exception as error:
        console.unexpected(type(error), error, error.__traceback__)
        words.send_bytes(f"{type(error).__name__}: {error}".encode())
        status = FAILED
    sys.exit(status)


def each(names: list[str], processes: int, do: Callable[[str], int], look: Callable[[], None]) -> dict[str, Ended]:
    """Call `do(name)` for every shard, `processes` at once; how each ended that was begun.

    `do` returns WORKED or NOTHING, or raises Failed. After a failure those that run end their work, and no other is begun.
    `look` is called between two looks at them.
    """
    context = multiprocessing.get_context("fork")
    waiting, ended = deque(names), dict[str, Ended]()
    running: dict[Any, tuple[str, BaseProcess, Connection]] = {}  # by sentinel
    while running or waiting:
        while waiting and len(running) < processes:
            name = waiting.popleft()
            words, sender = context.Pipe(duplex=False)
            process = context.Process(target=_process, args=(do, name, os.getpid(), sender), daemon=True)
            process.start()
            sender.close()
            running[process.sentinel] = (name, process, words)
        for sentinel in wait(list(running), LOOK):
            name, over, words = running.pop(sentinel)
            over.join()
            said = words.recv_bytes().decode() if over.exitcode == FAILED and words.poll() else ""
            ended[name] = Ended(FAILED if over.exitcode is None else over.exitcode, said)
            words.close()
            if not ended[name].made:
                waiting.clear()
        look()
    return ended
