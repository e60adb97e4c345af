"""Which GPUs of this machine a job of a local run has: locks of the kernel's, one file for each GPU, in a folder of the run.

Snakemake counts GPUs (its resource `card`) and does not say which are free. A job takes its own here, and CUDA_VISIBLE_DEVICES shows it no
others. A lock ends with the last process that has its file open, so a job that is killed leaves none behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from crawl2llm.chain import placement_options
from crawl2llm.core import devices
from crawl2llm.core.console import log

VARIABLE = "CRAWL2LLM_GPUS"  # environment, as JSON: the folder of locks, the names of the run's GPUs, how many it may have at a time
FOLDER = Path(".snakemake/gpus")
# Steps without a launcher that compute on a GPU if there is one: each job takes one.
ONE_GPU_STEPS = (
    "quality.transformers",
    "align.pairs",
    "compress.teach",
    "evaluate.model",
    "evaluate.public",
    "evaluate.curve",
    "evaluate.common",
    "evaluate.generate",
)
POLL_SECONDS = 0.2  # seconds between two looks at GPUs that are all taken
TELL_SECONDS = 60.0  # seconds between two lines about the wait
ALLOCATION = "PYTORCH_ALLOC_CONF"
SEGMENTS = "expandable_segments:True"
LOCK_FILES: list[IO[str]] = []  # keeps the files open, and so the locks, until the process ends


class GpuWaitInterrupted(Exception):
    """A signal that the caller holds back came while this waited for a GPU."""


def announce_gpus(names: list[str], folder: Path = FOLDER, most: int | None = None) -> None:
    """Tell the jobs that this process starts which GPUs the run has; none: jobs look for themselves, as they do without this.

    most: how many of them it may have at a time, as `--resources card=…` says; of 0 no job sees any. None: all.
    """
    os.environ.pop(VARIABLE, None)
    if names:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        most = len(names) if most is None else min(most, len(names))
        os.environ[VARIABLE] = json.dumps({"folder": str(folder.absolute()), "names": names, "most": most})


def gpus_of_run() -> tuple[Path, list[str], int]:
    """(folder of the locks, names of the GPUs, how many at a time) of the run that this process belongs to; no names outside a local run
    with GPUs.
    """
    announced = json.loads(os.environ.get(VARIABLE) or "{}")
    names = list(announced.get("names", []))
    return Path(announced.get("folder", FOLDER)), names, int(announced.get("most", len(names)))


def gpus_needed(step: str, section: Mapping[str, Any]) -> int:
    """How many GPUs of this machine a task of a step takes in a local run, by its section of the config; 0 if the run has none."""
    if not gpus_of_run()[1] or section.get("device") == "cpu":
        return 0
    if step in ONE_GPU_STEPS:
        return 1
    return int(section["processes"]) if is_launched(step) else 0


def is_launched(step: str) -> bool:
    """Whether a launcher starts the step's program, in `processes` processes with a GPU each."""
    return "processes" in placement_options.placement_keys(step, placement_options.LAUNCHER)


def lock_free_gpus(folder: Path, names: list[str], number: int) -> list[tuple[str, IO[str]]]:
    """So many GPUs with their locks, the first that are free; [] if there are fewer, and then none is held."""
    with contextlib.ExitStack() as stack:
        locked: list[tuple[str, IO[str]]] = []
        for place, name in enumerate(names):
            handle = stack.enter_context((folder / f"{place}.lock").open("a+", encoding="utf-8"))
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked.append((name, handle))
            if len(locked) == number:
                stack.pop_all()
                return locked
    return []


@contextlib.contextmanager
def turn_lock(folder: Path) -> Iterator[None]:
    """One job at a time looks for GPUs: two that need several would each hold some and wait for the others' for ever."""
    with (folder / "turn.lock").open("a+", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def take_gpus(number: int, tell: Callable[[str], None] = log.info) -> list[int]:
    """Wait for so many of the run's GPUs, hold them until this process ends, and let it and what it starts see them alone.

    A job that wants more than the run may have gets as many; whether it can work with them, it says itself. Nothing happens outside a local
    run with GPUs. Returns the descriptors of the locks: a process that is started with them (`pass_fds`) holds the GPUs too, until it ends.
    tell: is given a line about a long wait. Raises GpuWaitInterrupted if a signal that is held back comes during the wait.
    """
    folder, names, most = gpus_of_run()
    if not names:
        return []
    number = min(number, most)
    if not number:
        os.environ[devices.VISIBLE_VARIABLE] = ""
        return []
    tells = time.monotonic() + TELL_SECONDS / 10
    while True:
        with turn_lock(folder):
            locked = lock_free_gpus(folder, names, number)
        if locked:
            break
        if signal.sigpending():
            raise GpuWaitInterrupted
        if time.monotonic() > tells:
            tell(f"waits for {number} of the GPUs {', '.join(names)}: other jobs of this run have them")
            tells = time.monotonic() + TELL_SECONDS
        time.sleep(POLL_SECONDS)
    LOCK_FILES.extend(handle for _, handle in locked)
    os.environ[devices.VISIBLE_VARIABLE] = ",".join(name for name, _ in locked)
    del os.environ[VARIABLE]  # what this process starts has its GPUs
    return [handle.fileno() for _, handle in locked]


def take_for_step(step: str, device: str = "auto") -> None:
    """Take the one GPU of a step without a launcher, and log the GPUs of a step that has any."""
    if device == "cpu":
        return
    if step in ONE_GPU_STEPS:
        take_gpus(1)
        os.environ.update(allocator_variables())
    if devices.VISIBLE_VARIABLE in os.environ and (step in ONE_GPU_STEPS or is_launched(step)):
        log.info("%s=%s", devices.VISIBLE_VARIABLE, os.environ[devices.VISIBLE_VARIABLE])


def allocator_variables(root: Path = devices.DRIVER) -> dict[str, str]:
    """The variable that has torch's allocator of GPU memory grow its segments, which wastes less of it; none without NVIDIA's driver, or if
    a person has set one.

    torch documents it under "CUDA semantics", "Optimizing memory usage with PYTORCH_ALLOC_CONF"; the second name is the one before 2.10.
    """
    if not root.exists() or ALLOCATION in os.environ or "PYTORCH_CUDA_ALLOC_CONF" in os.environ:
        return {}
    return {ALLOCATION: SEGMENTS}
