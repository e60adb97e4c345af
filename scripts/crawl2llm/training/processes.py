"""Several processes side by side: their places in a group, signals passed on, one exit status.

torchrun is not used since it turns every exit status into 1 and ends its workers 30 s after a signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from crawl2llm.chain import exit_signals
from crawl2llm.core import secret_masking
from crawl2llm.core.console import print_line
from crawl2llm.training.hang_detector import Watch

RESUBMIT = 85  # exit status: stopped by a signal after a checkpoint; start again to resume
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
GRACE = 15.0  # seconds for the other processes to end by themselves after one failed
TAIL = 200  # lines of a process's stderr that are kept to tell why it failed
TRACEBACK = "Traceback (most recent call last):"
# Large tensors of a training step come from the heap and stay in it, in huge pages: by default glibc maps and unmaps each,
# and every page of it is faulted in and zeroed again (glibc manual, "Memory Allocation Tunables"). docs/memory.md has the gain.
TUNABLES = ":".join(
    f"glibc.malloc.{name}" for name in ("mmap_threshold=1073741824", "trim_threshold=1073741824", "hugetlb=1")
)
GPU = Path("/dev/nvidiactl")
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def free_port() -> int:
    """A TCP port that is free on this node now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def malloc_variables() -> dict[str, str]:
    """The variable that has CPU training keep its memory; none if there is a GPU, or where a person has set it."""
    return {} if GPU.exists() or "GLIBC_TUNABLES" in os.environ else {"GLIBC_TUNABLES": TUNABLES}


def environments(node: int, nodes: int, processes: int, address: str, port: int) -> list[dict[str, str]]:
    """The variables that tell each process of this node its place."""
    return [
        {
            "RANK": str(node * processes + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(nodes * processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "HF_HUB_OFFLINE": "1",
        }
        | ({"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"} if nodes == 1 else {})
        | malloc_variables()
        for local in range(processes)
    ]


def hold_signals() -> None:
    """Hold stopping signals back until `on_stop_signal`: one that comes while a program starts is not lost, and does not end it.

    `supervise` starts its processes with signals held. So a training program that is warned while it starts still does
    a step and saves it: a job that queues itself again makes progress at every start.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def on_stop_signal(handler: Callable[[int, FrameType | None], None]) -> None:
    """Call `handler` at every stopping signal from now on, also at one that was held back."""
    for number in STOPPING:
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def status_of(codes: Sequence[int]) -> int:
    """One exit status for all processes: a failure before RESUBMIT before 0; a signal n as 128 + n."""
    shell = [128 - code if code < 0 else code for code in codes]
    failed = [code for code in shell if code not in (0, RESUBMIT)]
    # A process that was killed for another's failure (137) says less than the failure itself.
    return min(failed) if failed else max(shell)


class Child:
    """A process whose stderr is passed on without secrets, and whose last lines and time of end are kept."""

    def __init__(
        self, command: list[str], environment: dict[str, str], prepared: Callable[[], None], locks: Sequence[int]
    ) -> None:
        self.rank, self.world = environment.get("RANK", ""), int(environment.get("WORLD_SIZE", "1"))
        self.process = subprocess.Popen(
            command, env=environment, preexec_fn=prepared, stderr=subprocess.PIPE, pass_fds=locks
        )
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.ended = float("inf")
        self.killed = False  # by `supervise`, for another's failure
        self.reader = threading.Thread(target=self._forward_stderr, args=(self.process.stderr,), daemon=True)

    def _forward_stderr(self, stream: IO[bytes]) -> None:
        for line in stream:
            text = secret_masking.mask(line.decode("utf-8", "surrogateescape"))
            with contextlib.suppress(OSError):  # nothing reads from it any more
                os.write(2, text.encode("utf-8", "surrogateescape"))
            self.tail.append(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").rstrip("\n"))
        self.process.wait()
        self.ended = time.monotonic()

    def __str__(self) -> str:
        if self.world == 1:
            return "the program"
        return f"rank {self.rank} (of {self.world} processes, on {socket.gethostname()})"

    def traceback(self) -> list[str]:
        """The last traceback on its stderr; [] if there is none, or an `error: …` after it says more."""
        lines = list(self.tail)
        starts = [number for number, line in enumerate(lines) if line.strip().endswith(TRACEBACK)]
        if not starts:
            return []
        trace = lines[starts[-1] :]
        end = next((n for n, line in enumerate(trace) if n and line and not line.startswith((" ", "\t"))), len(trace))
        if any(line.startswith("error: ") or ": error: " in line for line in trace[end + 1 :]):
            return []
        return trace[: end + 1]


def first_failure(children: Sequence[Child], step: str, memory: str | None) -> tuple[str, str] | None:
    """(what the first process that failed died of, its traceback); None if it has said so itself, as `error: …`."""
    failed = [child for child in children if child.process.returncode not in (0, RESUBMIT) and not child.killed]
    if not failed:
        return None
    first = min(failed, key=lambda child: child.ended)
    if first.process.returncode < 0:
        return f"{first} {exit_signals.signal_explanation(-first.process.returncode, step, memory)}", ""
    if trace := first.traceback():
        return f"{first} failed{' first' if first.world > 1 else ''}: {trace[-1]}", "\n".join(trace)
    return None


def to_stderr(message: str, _: str) -> None:
    """Print an error as a step does; its traceback is on stderr already."""
    print_line(f"error: {message}", file=sys.stderr, flush=True)


def supervise(
    commands: Sequence[tuple[list[str], dict[str, str]]],
    listening: bool = True,
    step: str = "",
    say: Callable[[str, str], None] = to_stderr,
    watch: Watch | None = None,
    locks: Sequence[int] = (),
) -> int:
    """Run the commands side by side, pass signals on as SIGUSR1, end all when one fails; returns the exit status.

    On Linux they end with this process, even where it is killed (not a program that is setuid, as Apptainer may be).
    `listening` says that they call `on_stop_signal`. Stopping signals stay without effect after the return. `say` is called once,
    after the end of all, with a message and a traceback (or ""), where the first that failed was ended by a signal or by
    an unexpected error; `step` decides what such a message tells to lower. `watch` ends all if one of them hangs: status 1.
    locks: descriptors of files that they hold open too, until each ends (chain/gpu_slots.py).
    """
    children: list[Child] = []
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    before = exit_signals.oom_kill_counts()

    def prepare_child() -> None:
        if libc:
            libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        signal.pthread_sigmask(signal.SIG_BLOCK if listening else signal.SIG_UNBLOCK, STOPPING)

    def forward_signal(number: int, _: FrameType | None) -> None:
        for child in children:
            if child.process.poll() is None:
                child.process.send_signal(signal.SIGUSR1)

    hold_signals()
    for command, environment in commands:
        children.append(Child(command, environment, prepare_child, locks))
    for child in children:
        child.reader.start()  # after the last fork, and with stopping signals held: they are for the main thread
    on_stop_signal(forward_signal)
    deadline = hangs = None
    while any(child.process.poll() is None for child in children):
        if deadline is None and watch and (hangs := watch.find_hang()):
            deadline = 0.0
        if deadline is None and any(child.process.poll() not in (None, 0, RESUBMIT) for child in children):
            deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            for child in children:
                child.killed = child.killed or child.process.poll() is None
                child.process.kill()
        time.sleep(0.05)
    for child in children:
        child.reader.join(timeout=5)  # a program of its own that a process left behind may hold the pipe open
    if watch:
        hangs = hangs or watch.reported_hang()
        watch.close()
    if hangs:
        print_line(hangs[1], file=sys.stderr, flush=True)
        say(f"{hangs[0]}{exit_signals.resume_hint(step)}", hangs[1])
        return 1
    if failure := first_failure(children, step, exit_signals.lack_of_memory(before)):
        say(*failure)
    return status_of([child.process.returncode for child in children])
