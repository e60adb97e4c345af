"""Going back to a checkpoint before a spike that stays, and on with other batches.

As for PaLM (https://arxiv.org/abs/2204.02311, section 5.1): training goes on from a checkpoint some 100 steps before the spike began,
without the batches that led to it. A spike stays where `roll_back_after` of the last `spike_window` steps, since
the run last went back, were skipped. The run goes
back to the last multiple of `roll_back_every` before the first of them; these steps have a checkpoint each, whatever `checkpoint_every`
says, so that the result depends on no placement. The sequences of a step are then as many further on as were left out (`Run.ahead`).
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from crawl2llm.core.console import log
from crawl2llm.training import checkpoint, group
from crawl2llm.training.metrics import ROLL_BACK_KEY as ROW
from crawl2llm.training.metrics import Recorder
from crawl2llm.training.run import Run


def target_step(run: Run, step: int) -> int:
    """The step to go back to after `step`; 0 where the run goes on. The same on every process."""
    settings, interval = run.settings, run.rollback_interval
    if not interval or run.update.applied or run.overflowed or len(run.rolled) >= settings.roll_backs:
        return 0
    window = settings.spike_window
    # Those after the step that the run last went back to: further back it never goes, where no checkpoint may be left.
    since = max(step - window, run.rolled[-1]["to"] if run.rolled else 0)
    skipped = [each for each in run.skipped if each > since]
    if len(skipped) < settings.roll_back_after:
        return 0
    target = (skipped[0] - 1) // interval * interval
    return target if target > run.begun else 0


def go_back(run: Run, recorder: Recorder | None, step: int, back: int) -> None:
    """Go back from `step` to the checkpoint after step `back`: its weights, optimizer and counts, and the batches after those of `step`.

    The checkpoint is written again, with what was left out, so that a resumed run knows it; a kill before that goes the same way again.
    """
    thrown: dict[str, Any] = {"from": step, "to": back, "skipped_steps": [each for each in run.skipped if each > back]}
    if run.checkpoint_writer:
        run.checkpoint_writer.wait()
    box: list[Any] = [None]
    if run.rank == 0:
        box[0] = checkpoint.remove_checkpoints_after(run.folder, back)
    dist.broadcast_object_list(box, device=run.device)
    if box[0] is None:
        raise checkpoint.CollectiveError(
            f"{run.folder / f'step-{back:06d}'}, to go back to, is not there or not complete"
        )
    left_out = run.plan.window_span(step + 1)[0] - run.plan.window_span(back + 1)[0]
    ahead, rolled = run.ahead + left_out, [*run.rolled, thrown | {"sequences": left_out}]
    with group.long_waits():
        checkpoint.check_digests(box[0], run.folder)
        run.restore(box[0])
    run.ahead, run.rolled = ahead, rolled
    if recorder:
        log.warning(
            "%s of the steps up to %s were skipped: back to step %s, and on with the batches after it (%s of at most %s times)",
            len(rolled[-1]["skipped_steps"]), f"{step:,}", f"{back:,}", len(rolled), run.settings.roll_backs,
        )  # fmt: skip
        recorder.rewrite_rows(lambda rows: [*rows_until(rows, back), {"step": back, ROW: len(rolled), **rolled[-1]}])
        recorder.sync()
    run.save(back, box[0].validation)


def rows_until(rows: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    """The rows up to `step`, and all that say that a run went back."""
    return [
        {**row, "step": min(row["step"], step)} if ROW in row else row
        for row in rows
        if ROW in row or row["step"] <= step
    ]


def forget_undone_rows(run: Run, recorder: Recorder | None) -> None:
    """Forget rows of a going back that a kill undid."""
    if recorder and run.rollback_interval:
        recorder.rewrite_rows(lambda rows: [row for row in rows if row.get(ROW, 0) <= len(run.rolled)])


def report_notes(rolled: list[dict[str, Any]]) -> list[str]:
    """Notes for the report."""
    return [
        f"After step {each['from']:,} it went back to step {each['to']:,}, and on without the batches in between, since "
        f"{len(each['skipped_steps'])} of these steps were spikes or not finite."
        for each in rolled
    ]
