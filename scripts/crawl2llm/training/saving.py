"""A checkpoint of a training: the engine's files and what makes a model of them, written while it waits or while it goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from crawl2llm.core import atomic_folder
from crawl2llm.training import checkpoint, group, model
from crawl2llm.training.async_checkpoints import Beside
from crawl2llm.training.engine import Engine


class Training(Protocol):
    """What a checkpoint is saved of: a run of pre-training or of fine-tuning, on one process."""

    rank: int
    folder: Path
    engine: Engine
    beside: Beside | None  # writes while training goes on; None: training waits


def save(
    run: Training,
    made: checkpoint.Checkpoint,
    kept: checkpoint.Kept,
    dtype: str,
    companions: Callable[[], Sequence[Path]],
    end: bool = True,
) -> None:
    """A checkpoint of all processes, as `made` describes it. A collective call.

    dtype: of the weights in a model that is made of it. companions: finds the tokenizer's files. end: return when it is whole, also where
    it is written beside the training.
    """
    rest = partial(write, run, dtype, companions)
    if run.beside:
        run.beside.wait()
        with group.patience():
            staged = run.engine.staged()
        run.beside.save(partial(rest, staged), made, kept)
        if end:
            run.beside.wait()
        return
    with group.patience(), checkpoint.writing(run.folder):
        checkpoint.save(partial(rest, run.engine.save), made, kept)


def write(
    run: Training,
    dtype: str,
    companions: Callable[[], Sequence[Path]],
    save: Callable[[Path], list[str] | None],
    folder: Path,
) -> list[str]:
    """The engine's files, and what the weights need to be a model: its configuration and tokenizer. The names of those that are known.

    save: Engine.save, or what Engine.staged returned.
    """
    names = save(folder) or []
    if run.rank == 0:
        beside = folder / model.FOLDER
        model.describe(run.engine.model.config, dtype, beside)
        for path in companions():
            shutil.copyfile(path, beside / path.name)
        names += [f"{model.FOLDER}/{name}" for name in atomic_folder.synced(beside)]
    return names
