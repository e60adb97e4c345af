"""A checkpoint of a training: the engine's files and what makes a model of them, written while it waits or while it goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from crawl2llm.core import atomic_folder
from crawl2llm.training import checkpoint, group, model
from crawl2llm.training.async_checkpoints import AsyncWriter
from crawl2llm.training.engine import Engine


class Training(Protocol):
    """What a checkpoint is saved of: a run of pre-training or of fine-tuning, on one process."""

    rank: int
    folder: Path
    engine: Engine
    checkpoint_writer: AsyncWriter | None  # writes while training goes on; None: training waits


def save_checkpoint(
    run: Training,
    new_checkpoint: checkpoint.Checkpoint,
    kept: checkpoint.KeepPolicy,
    dtype: str,
    companions: Callable[[], Sequence[Path]],
    end: bool = True,
) -> None:
    """A checkpoint of all processes, as `new_checkpoint` describes it. A collective call.

    dtype: of the weights in a model that is made of it. companions: finds the tokenizer's files. end: return when it is whole, also where
    it is written beside the training.
    """
    rest = partial(write_files, run, dtype, companions)
    if run.checkpoint_writer:
        run.checkpoint_writer.wait()
        with group.long_waits():
            staged = run.engine.stage_checkpoint()
        run.checkpoint_writer.save(partial(rest, staged), new_checkpoint, kept)
        if end:
            run.checkpoint_writer.wait()
        return
    with group.long_waits(), checkpoint.detect_full_disk(run.folder):
        checkpoint.save(partial(rest, run.engine.save), new_checkpoint, kept)


def write_files(
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
        model_folder = folder / model.FOLDER
        model.write_config(run.engine.model.config, dtype, model_folder)
        for path in companions():
            shutil.copyfile(path, model_folder / path.name)
        names += [f"{model.FOLDER}/{name}" for name in atomic_folder.sync_folder(model_folder)]
    return names
