"""Updates that are left out, since the loss or the gradient is not finite, or a spike: what losses.jsonl and the log say of them."""

from __future__ import annotations

import math
from typing import Any

import torch.distributed as dist

from crawl2llm.core.console import log
from crawl2llm.core.phrases import first_few
from crawl2llm.training import group
from crawl2llm.training.callback import Callback
from crawl2llm.training.loss_scale import OVERFLOW, log_overflow
from crawl2llm.training.run import Run
from crawl2llm.training.run_state import RunState


class SkippedSteps(Callback):
    """Adds to the row of a step that was left out what was `skipped`, the `reason`, and its `documents`' ids."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def after_step(self, state: RunState) -> None:
        if not state.update.applied:
            state.row |= self._overflow_facts(state) if state.overflowed else self._skipped_facts(state)

    def _overflow_facts(self, state: RunState) -> dict[str, Any]:
        """An overflow of fp16's loss scale has nothing to do with the step's documents, so none is listed."""
        if self.run.rank == 0:
            log_overflow(state.step)
        return {"skipped": "gradient", "reason": OVERFLOW, "documents": []}

    def _skipped_facts(self, state: RunState) -> dict[str, Any]:
        """Process 0 alone reads the ids, and logs the step."""
        run, spike, ids = self.run, dict[str, Any](), list[str]()
        quantity = "gradient" if math.isfinite(state.loss) else "loss"
        reason, description = "not finite", "is not finite"
        if state.spiked and run.spikes is not None:
            quantity, reason, far = run.spikes.quantity, "spike", run.spikes.deviations
            many = f"{far:,.1f} standard deviations" if math.isfinite(far) else "far"  # all steps before were the same
            spike = {"deviations": round(far, 2) if math.isfinite(far) else None}
            description = f"is {many} above the mean of the last steps"
        with group.long_waits():
            if run.rank == 0:
                ids = run.document_ids(state.step)
                log.warning(
                    "step %s: the %s %s, its update is skipped (%s of at most %s); its %s documents: %s",
                    f"{state.step:,}", quantity, description, len(state.skipped), run.settings.max_skipped_steps,
                    f"{len(ids):,}", first_few(ids, 3),
                )  # fmt: skip
            dist.barrier()
        return {"skipped": quantity, "reason": reason, **spike, "documents": ids}


def report_notes(rows: list[dict[str, Any]], steps: int) -> list[str]:
    """A note for the report on the steps that losses.jsonl says were left out; [] without any."""
    skipped = [entry for entry in rows if "skipped" in entry and entry["reason"] != OVERFLOW]
    if not skipped:
        return []
    spiked = any(entry["reason"] == "spike" for entry in skipped)
    why = "not finite, or far above that of the steps before" if spiked else "not finite"
    listed = ", ".join(str(entry["step"]) for entry in skipped)
    return [
        f"{len(skipped)} of {steps:,} steps were skipped, since their loss or gradient was {why}: {listed} (their documents are in "
        "losses.jsonl)."
    ]
