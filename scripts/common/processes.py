"""Several processes side by side: their places in a group, signals passed on, one exit status.

torchrun is not used since it turns every exit status into 1 and ends its workers 30 s after a signal.
"""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

__tracked__ = False  # places processes, never decides: see scripts/common/fingerprint.py

RESUBMIT = 85  # exit status: stopped by a signal after a checkpoint; start again to go on
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
GRACE = 15.0  # seconds for the other processes to end by themselves after one failed
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def free_port() -> int:
    """A TCP port that is free on this node now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


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
        | ({"GLOO_SOCKET_IFNAME": "lo"} if nodes == 1 else {})
        for local in range(processes)
    ]


def hold() -> None:
    """Hold stopping signals back until `listen`: one that comes while a program starts is not lost, and does not end it.

    `supervise` starts its processes with signals held. So a training program that is warned while it starts still does
    a step and saves it: a job that queues itself again cannot go round without getting on.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def listen(handler: Callable[[int, FrameType | None], None]) -> None:
    """Call `handler` at every stopping signal from now on, also at one that was held back."""
    for number in STOPPING:
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def listen_no_more() -> None:
    """For what comes after training and has no checkpoint: a warning is ignored, SIGTERM and SIGINT end the program."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def status_of(codes: Sequence[int]) -> int:
    """One exit status for all processes: a failure before RESUBMIT before 0; a signal n as 128 + n."""
    shell = [128 - code if code < 0 else code for code in codes]
    failed = [code for code in shell if code not in (0, RESUBMIT)]
    # A process that was killed for another's failure (137) says less than the failure itself.
    return min(failed) if failed else max(shell)


def supervise(commands: Sequence[tuple[list[str], dict[str, str]]], listening: bool = True) -> int:
    """Run the commands side by side, pass signals on as SIGUSR1, end all when one fails; returns the exit status.

    On Linux they end with this process, even where it is killed (not a program that is setuid, as Apptainer may be).
    `listening` says that they call `listen`. Stopping signals stay without effect after the return.
    """
    children: list[subprocess.Popen[bytes]] = []
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepared() -> None:
        if libc:
            libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        signal.pthread_sigmask(signal.SIG_BLOCK if listening else signal.SIG_UNBLOCK, STOPPING)

    def forward(number: int, _: FrameType | None) -> None:
        for child in children:
            if child.poll() is None:
                child.send_signal(signal.SIGUSR1)

    hold()
    for command, environment in commands:
        children.append(subprocess.Popen(command, env=environment, preexec_fn=prepared))
    listen(forward)
    deadline = None
    while any(child.poll() is None for child in children):
        if deadline is None and any(child.poll() not in (None, 0, RESUBMIT) for child in children):
            deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            for child in children:
                child.kill()
        time.sleep(0.05)
    return status_of([child.wait() for child in children])
