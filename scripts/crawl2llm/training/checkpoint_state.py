"""What a checkpoint says of a pre-training, and which of its checkpoints stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crawl2llm.training import checkpoint, loss_scale, rollback

if TYPE_CHECKING:
    from crawl2llm.training.run import Run


def keep_policy(run: Run) -> checkpoint.KeepPolicy:
    """Which checkpoints stay when a new one is whole: what a run may resume from, go back to or end with."""
    points = rollback.kept_points(run.settings)
    return checkpoint.KeepPolicy(run.args.keep_checkpoints, run.args.keep_every, run.keeps_best, points)


def build_checkpoint(run: Run, step: int, validation: float | None) -> checkpoint.Checkpoint:
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
        seen=run.plan.window_span(step + 1)[0] + run.ahead,
        rolled=tuple(run.rolled),
        stale=run.stale,
        stopped=run.stopped,
        begun=run.begun,
        optimizer=run.settings["optimizer"],
        **loss_scale.checkpoint_facts(run.engine, run.overflows),
    )
