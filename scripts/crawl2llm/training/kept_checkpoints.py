"""The checkpoints that a finished training has kept (`keep_every` of its step), for a step that reads them beside its result.

They are in no manifest: a run that has removed one that is needed cannot have it again without training, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crawl2llm.core import checkpoint_folders
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.training import checkpoint
from crawl2llm.training.metrics import LOSSES


def checkpoint_folder(trained: Manifest, below: Path) -> Path:
    """The folder of a training's checkpoints. Raises InputError if it is not there.

    Trainings on other files of the same sources have the same fingerprint: the losses of every step tell them apart.
    """
    losses = trained.file(next(name for name in trained.files if Path(name).name == LOSSES)).read_bytes()
    for place, _, mark in checkpoint_folders.trainings_below(below):
        rows = place / LOSSES
        if mark == trained.fingerprint and rows.is_file() and rows.read_bytes() == losses:
            return place
    raise InputError(
        f"no checkpoints of this training are in {below}/: they were removed, or were written under earlier code or settings; remove the "
        f"training's manifest ({trained.path}) to train again, or take what reads them out of the config"
    )


def step_of_model(trained: Manifest) -> int:
    """The step whose weights the model of a finished training has: with early_stop the best one, which others may follow; else the last."""
    summary = trained.summary
    return int(summary["early_stop"]["best_step"] if "early_stop" in summary else summary["steps"])


def kept_checkpoints(trained: Manifest, below: Path, steps: Sequence[int], setting: str) -> list[checkpoint.Checkpoint]:
    """The checkpoints of these steps, in their order. below: folder of all runs' checkpoints. setting: what asks for them, key and value.

    Raises InputError if one is not there.
    """
    folder = checkpoint_folder(trained, below)
    by_step = {saved_checkpoint.step: saved_checkpoint for saved_checkpoint in checkpoint.complete_checkpoints(folder)}
    if absent := [step for step in steps if step not in by_step]:
        saved_steps = ", ".join(f"{step:,}" for step in sorted(by_step)) or "none"
        raise InputError(
            f"{setting}, and {folder} has no checkpoint of step {', '.join(f'{step:,}' for step in absent[:5])} (it has those of: "
            f"{saved_steps}). A training keeps them with {trained.step}.keep_every, which reruns nothing; one that is finished has to "
            "train again: remove its manifest"
        )
    return [by_step[step] for step in steps]
