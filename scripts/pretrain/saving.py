"""A checkpoint of a run: what it says of itself, its files, and which of those before stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.pretrain import checkpoint, group, model, rollback
from scripts.training import sealed

if TYPE_CHECKING:
    from scripts.pretrain.run import Run


def save(run: Run, step: int, validation: float | None = None, end: bool = True) -> None:
    """A checkpoint of all processes after `step`. A collective call.

    validation: the loss of one after this step. end: return when it is whole, also where it is written beside the training.
    """
    made = described(run, step, validation)
    points = rollback.kept_points(run.settings)
    kept = checkpoint.Kept(run.args.keep_checkpoints, run.args.keep_every, run.keeps_best, points)
    if run.beside:
        run.beside.wait()
        with group.patience():
            written = run.engine.staged()
        run.beside.save(partial(write, run, written), made, kept)
        if end:
            run.beside.wait()
        return
    with group.patience(), checkpoint.writing(run.folder):
        checkpoint.save(partial(write, run, run.engine.save), made, kept)


def described(run: Run, step: int, validation: float | None) -> checkpoint.Checkpoint:
    """What a checkpoint after `step` says of the run; see `Run.restore`, which takes it back."""
    return checkpoint.Checkpoint(
        path=run.folder / f"step-{step:06d}",
        step=step,
        processes=run.processes,
        zero_stage=run.settings["zero_stage"],
        settings=run.mark,
        code=run.code,
        skipped=tuple(run.skipped),
        changed=run.changed,
        engine=run.kind,
        validation=validation,
        lowest=run.lowest,
        recent=tuple(run.spikes.recent) if run.spikes else (),
        ahead=run.ahead,
        seen=run.plan.span(step + 1)[0] + run.ahead,
        rolled=tuple(run.rolled),
        stale=run.stale,
        stopped=run.stopped,
        begun=run.begun,
    )


def write(run: Run, save: Callable[[Path], list[str] | None], folder: Path) -> list[str]:
    """The engine's files, and what the weights need to be a model: its configuration and tokenizer. The names of those that are known.

    save: Engine.save, or what Engine.staged returned.
    """
    names = save(folder) or []
    if run.rank == 0:
        beside = folder / model.FOLDER
        model.describe(run.engine.model.config, run.settings["save_dtype"], beside)
        for path in model.companions(run.args.tokenizer):
            shutil.copyfile(path, beside / path.name)
        names += [f"{model.FOLDER}/{name}" for name in sealed.synced(beside)]
    return names
