"""Early stop: a run ends where `early_stop` validations in a row were no better than the best, and its model is that of the best.

`early_stop` is the patience of Goodfellow, Bengio and Courville 2016 (Deep Learning, algorithm 7.1, where the parameters are those of the
best validation too). The learning rate follows the whole number of steps all the same. Each best validation has a checkpoint,
whatever `keep_best` says, so that the result depends on no placement.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from crawl2llm.core.console import log
from crawl2llm.training import checkpoint, group
from crawl2llm.training.run import Run


def should_stop(run: Run, step: int) -> bool:
    """Whether the run ends after the validation of `step`, before its last step."""
    patience = run.settings.early_stop
    if patience and run.stale >= patience and step < run.plan.steps:
        run.stopped = step
        return True
    return False


def may_stop_at(run: Run, step: int) -> bool:
    """Whether the run ends after `step` where its validation is no better than the best."""
    patience = run.settings.early_stop
    return patience is not None and run.stale + 1 >= patience and run.wants_validation(step)


def load_best_weights(run: Run) -> None:
    """At the end of a run that may stop early, take the weights of its best validation. A collective call."""
    if not run.settings.early_stop or run.lowest is None:
        return
    box: list[Any] = [None]
    if run.rank == 0:
        scored = [
            candidate for candidate in checkpoint.complete_checkpoints(run.folder) if candidate.validation is not None
        ]
        box[0] = min(scored, key=lambda candidate: (candidate.validation, candidate.step), default=None)
        if box[0] is not None and run.stopped:
            log.info(
                "stopped early after step %s: no validation since step %s was better",
                f"{run.stopped:,}",
                f"{box[0].step:,}",
            )
    dist.broadcast_object_list(box, device=run.device)
    if box[0] is None or box[0].validation != run.lowest:
        raise checkpoint.CollectiveError(
            f"the checkpoint of the best validation, {run.lowest}, is no longer in {run.folder}"
        )
    with group.long_waits():
        checkpoint.check_digests(box[0], run.folder)
        run.engine.load(box[0], run.folder)
    run.best = box[0].step


def manifest_summary(run: Run) -> dict[str, Any]:
    """What the manifest says."""
    return {"early_stop": {"after_step": run.stopped or None, "best_step": run.best}} if run.best else {}


def report_notes(run: Run) -> list[str]:
    """Notes for the report."""
    if not run.best:
        return []
    ended = f"It stopped early, after step {run.stopped:,} of {run.plan.steps:,}: " if run.stopped else ""
    return [f"{ended}the model is that of step {run.best:,}, the best validation."]
