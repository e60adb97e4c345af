"""Where a process of a training is: written by itself every second, read by the launchers (training/hang_detector.py).

A process writes a small file, its beat, into a folder that all nodes see: step, what it does, and how many collective calls it has
begun in each group. At SIGUSR2 it writes its stack, which faulthandler does while Python does not run, too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "CRAWL2LLM_ALIVE"  # the variable that names the folder of the beats; without it nothing is written
BEAT_SECONDS = 1.0  # seconds between beats
# Seconds without a beat after which a process does not run any more, before `set_wait_limit` has said less.
LONGEST_SILENCE = 600.0

_now: dict[str, Any] = {"step": 0, "phase": "starting", "limit": None, "least": LONGEST_SILENCE}


def set_phase(phase: str, step: int | None = None) -> None:
    """Say what this process does from now on, and in which step; None: in the same."""
    _now["phase"] = phase
    if step is not None:
        _now["step"] = step


def set_wait_limit(seconds: float) -> None:
    """Say how long the others wait for this process from now on. It writes beats all the same: none for the shortest such time means that
    it does not run.
    """
    _now["limit"] = seconds
    _now["least"] = min(_now["least"], seconds)


def start_beats() -> None:
    """Write beats from now on, and the stack at SIGUSR2, where the launcher has said where."""
    if not (place := os.environ.get(FOLDER_VARIABLE)):
        return
    folder, rank = Path(place), os.environ["RANK"]
    faulthandler.register(signal.SIGUSR2, file=(folder / f"{rank}.stack").open("w"), all_threads=True)
    threading.Thread(target=_write_beats, args=(folder / rank,), daemon=True).start()


def _write_beats(path: Path) -> None:
    """Write this process's beat until it ends."""
    identity = {
        "pid": os.getpid(),
        "node": socket.gethostname(),
        "main": threading.main_thread().ident,
        "outermost": _outermost_function(),
    }
    number = 0
    while path.parent.is_dir():  # the launcher removes it
        number += 1
        with contextlib.suppress(OSError):
            path.write_text(json.dumps({**identity, **_now, "number": number, "calls": _count_collective_calls()}))
        time.sleep(BEAT_SECONDS)


def _outermost_function() -> str:
    """The function that a whole stack of the main thread ends with."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    while frame.f_back:
        frame = frame.f_back
    return frame.f_code.co_name


def _count_collective_calls() -> dict[str, int]:
    """Collective calls that this process has begun, by the group: its name and its first rank."""
    if (torch := sys.modules.get("torch")) is None or not torch.distributed.is_initialized():
        return {}
    counts = {}
    for group, name in list(torch.distributed.distributed_c10d._world.pg_names.items()):
        with contextlib.suppress(RuntimeError, ValueError):  # a group without calls, or of others
            first = torch.distributed.get_process_group_ranks(group)[0]
            counts[f"{name} {first}"] = int(group._get_sequence_number_for_group())
    return counts
