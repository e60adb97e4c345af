"""fastText models by path: those that find languages, and classifiers."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from crawl2llm.core import pinned_names
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import checksum
from crawl2llm.formats import fasttext_trial

PREFIX = "__label__"  # of labels in fastText's files
WALL = 20  # seconds of the clock for each of processor time: the file may come from a slow file system
WIDTH = 16  # bytes of xxh3-128
# The digests of models that passed their trial, in memory that a task shares with the processes of its shards.
_passed = mmap.mmap(-1, 256 * WIDTH)


def load(name: str | Path, key: str, trial: bool = True) -> Any:
    """fastText's model in a file, once its digest is the one that `name` has (core/pinned_names.py) and a trial went well.

    fastText believes a file's sizes: a damaged one would end the task, or be read for ever. trial: not for what a package brings.
    Raises InputError, with the `key` of the config that names the file, if it is no model.
    """
    import fasttext

    path = pinned_names.verified_path(name, key)
    try:
        if trial:
            _try_model(path, key)
        return fasttext.load_model(path)
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        raise InputError(f"{key}: {path} is not a fastText model ({error})") from error


def _try_model(path: str, key: str) -> None:
    """Load the model in a process of its own (formats/fasttext_trial.py), once for a file's content. Raises InputError."""
    digest, memory = bytes.fromhex(checksum(Path(path))), _passed[:]
    places = [memory[at : at + WIDTH] for at in range(0, len(memory), WIDTH)]
    if digest in places:
        return
    if why := _trial_failure(path):
        raise InputError(
            f"{key}: {path} is not a fastText model that can be used: {why}. Fetch the file again and compare its SHA-256 with the "
            f"publisher's; {path}{pinned_names.SIGN}… in the config has it compared before the file is read"
        )
    at = places.index(bytes(WIDTH)) if bytes(WIDTH) in places else 0
    _passed[at * WIDTH : (at + 1) * WIDTH] = digest


def _trial_failure(path: str) -> str:
    """The error in the trial of a model; "" if it succeeded."""
    seconds = fasttext_trial.trial_seconds(Path(path).stat().st_size)
    command = [sys.executable, "-P", fasttext_trial.__file__, os.path.abspath(path), str(seconds)]  # noqa: PTH100 - links stay
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    slow = f"fastText did not come to an end with it in {seconds} s of processor time (a model of its size takes less)"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=WALL * seconds, env=environment, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return slow
    if done.returncode == -signal.SIGXCPU:
        return slow
    if done.returncode < 0:
        return f"fastText was ended by {signal.Signals(-done.returncode).name} in a trial run in a separate process"
    if done.returncode:
        return f"the trial ended with status {done.returncode}: {' '.join(done.stderr.split())[-200:]}"
    return done.stdout
