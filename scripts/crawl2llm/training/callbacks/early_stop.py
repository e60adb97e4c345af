"""Early stop: a run ends if `early_stop` validations in a row were no better than the best, and its model is that of the best.

`early_stop` is the patience of Goodfellow, Bengio and Courville 2016 (Deep Learning, algorithm 7.1, where the parameters are those of the
best validation too). The learning rate follows the whole number of steps all the same. Each best validation has a checkpoint,
whatever `keep_best` says, so that the result depends on no placement.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from crawl2llm.core.console import log
from crawl2llm.training import checkpoint, group
from crawl2llm.training.callback import Callback
from crawl2llm.training.run import Run
from crawl2llm.training.run_state import RunState


class EarlyStop(Callback):
    """Ends the run after `patience` validations that were no better than the best, and takes the best one's weights.

    Comes after `Validation` in the list.
    """

    def __init__(self, run: Run, patience: int) -> None:
        self.run, self.patience = run, patience

    def after_step(self, state: RunState) -> None:
        if self.run.wants_validation(state.step) and state.stale >= self.patience and state.step < self.run.last_step:
            state.stopped, state.over = state.step, True

    def may_stop_after(self, state: RunState) -> bool:
        """Whether the run ends after this step if its validation is no better than the best."""
        return state.stale + 1 >= self.patience and self.run.wants_validation(state.step)

    def after_training(self, state: RunState) -> None:
        """Take the weights of the best validation."""
        run = self.run
        if state.lowest is None:
            return
        box: list[Any] = [None]
        if run.rank == 0:
            scored = [
                candidate
                for candidate in checkpoint.complete_checkpoints(run.folder)
                if candidate.validation is not None
            ]
            box[0] = min(scored, key=lambda candidate: (candidate.validation, candidate.step), default=None)
            if box[0] is not None and state.stopped:
                log.info(
                    "stopped early after step %s: no validation since step %s was better",
                    f"{state.stopped:,}",
                    f"{box[0].step:,}",
                )
        dist.broadcast_object_list(box, device=run.device)
        if box[0] is None or box[0].validation != state.lowest:
            raise checkpoint.CollectiveError(
                f"the checkpoint of the best validation, {state.lowest}, is no longer in {run.folder}"
            )
        with group.long_waits():
            checkpoint.check_digests(box[0], run.folder)
            run.engine.load(box[0], run.folder)
        state.best = box[0].step


def manifest_summary(state: RunState) -> dict[str, Any]:
    """What the manifest says."""
    return {"early_stop": {"after_step": state.stopped or None, "best_step": state.best}} if state.best else {}


def report_notes(state: RunState, steps: int) -> list[str]:
    """Notes for the report. steps: of the whole run."""
    if not state.best:
        return []
    ended = f"It stopped early, after step {state.stopped:,} of {steps:,}: " if state.stopped else ""
    return [f"{ended}the model is that of step {state.best:,}, the best validation."]
