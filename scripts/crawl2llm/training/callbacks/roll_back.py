"""Going back to a checkpoint before a spike that stays, and on with other batches.

As for PaLM (https://arxiv.org/abs/2204.02311, section 5.1): training goes on from a checkpoint some 100 steps before the spike began,
without the batches that led to it. A spike stays if `roll_back_after` of the last `spike_window` steps were skipped; steps before the
last roll back do not count. The run goes back to the last multiple of `roll_back_every` before the first of them. Each multiple has a
checkpoint, whatever `checkpoint_every` says, so that the result depends on no placement. Every later step then reads sequences further
on, by as many as were left out (`RunState.ahead`).
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from crawl2llm.core.console import log
from crawl2llm.training import checkpoint, group
from crawl2llm.training.callback import Callback
from crawl2llm.training.metrics import ROLL_BACK_KEY as ROW
from crawl2llm.training.metrics import Recorder
from crawl2llm.training.run import Run
from crawl2llm.training.run_state import RunState


class RollBack(Callback):
    """Goes back if a spike stays. recorder: on process 0."""

    def __init__(self, run: Run, recorder: Recorder | None) -> None:
        self.run, self.recorder = run, recorder

    def before_training(self, state: RunState) -> None:
        """Forget rows of a roll back that a kill undid."""
        if self.recorder:
            self.recorder.rewrite_rows(lambda rows: [row for row in rows if row.get(ROW, 0) <= len(state.rolled)])

    def after_step(self, state: RunState) -> None:
        if target := self.target_step(state):
            self.go_back(state, target)
            state.goes_back = True

    def target_step(self, state: RunState) -> int:
        """The step to go back to; 0 if the run goes on."""
        settings = self.run.settings
        if state.update.applied or state.overflowed or len(state.rolled) >= settings.roll_backs:
            return 0
        # A run never goes further back than last time, since no checkpoint may be left there.
        since = max(state.step - settings.spike_window, state.rolled[-1]["to"] if state.rolled else 0)
        skipped = [step for step in state.skipped if step > since]
        if len(skipped) < settings.roll_back_after:
            return 0
        target = (skipped[0] - 1) // settings.roll_back_every * settings.roll_back_every
        return target if target > self.run.begun else 0

    def go_back(self, state: RunState, target: int) -> None:
        """Go back to the checkpoint after step `target`: its weights, optimizer and counts, and the batches after those of this step.

        The checkpoint is written again, with what was left out, so that a resumed run knows it. A run that is killed before that goes
        back again.
        """
        run, step = self.run, state.step
        roll_back: dict[str, Any] = {
            "from": step, "to": target, "skipped_steps": [each for each in state.skipped if each > target],
        }  # fmt: skip
        if run.checkpoint_writer:
            run.checkpoint_writer.wait()
        box: list[Any] = [None]
        if run.rank == 0:
            box[0] = checkpoint.remove_checkpoints_after(run.folder, target)
        dist.broadcast_object_list(box, device=run.device)
        if box[0] is None:
            raise checkpoint.CollectiveError(
                f"{run.folder / f'step-{target:06d}'}, to go back to, is not there or not complete"
            )
        left_out = run.plan.window_span(step + 1)[0] - run.plan.window_span(target + 1)[0]
        ahead, rolled = state.ahead + left_out, [*state.rolled, roll_back | {"sequences": left_out}]
        with group.long_waits():
            checkpoint.check_digests(box[0], run.folder)
            run.restore(box[0])
        state.ahead, state.rolled = ahead, rolled
        if self.recorder:
            log.warning(
                "%s of the steps up to %s were skipped: back to step %s, and on with the batches after it (%s of at most %s times)",
                len(rolled[-1]["skipped_steps"]), f"{step:,}", f"{target:,}", len(rolled), run.settings.roll_backs,
            )  # fmt: skip
            row = {"step": target, ROW: len(rolled), **rolled[-1]}
            self.recorder.rewrite_rows(lambda rows: [*rows_until(rows, target), row])
            self.recorder.sync()
        run.write_checkpoint(target, box[0].validation, end=True)
        if self.recorder:
            self.recorder.add_seconds(state.clock.total_seconds)


def rows_until(rows: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    """The rows up to `step`, and all that say that a run went back."""
    return [
        {**row, "step": min(row["step"], step)} if ROW in row else row
        for row in rows
        if ROW in row or row["step"] <= step
    ]


def report_notes(rolled: list[dict[str, Any]]) -> list[str]:
    """Notes for the report."""
    return [
        f"After step {each['from']:,} it went back to step {each['to']:,}, and on without the batches in between, since "
        f"{len(each['skipped_steps'])} of these steps were spikes or not finite."
        for each in rolled
    ]
