"""Updates that are left out: where loss or gradient is not finite, or a spike."""

from __future__ import annotations

import math
from typing import Any

import torch.distributed as dist

from crawl2llm.core.console import log
from crawl2llm.core.phrases import first_few
from crawl2llm.training import data, group
from crawl2llm.training.loss_scale import OVERFLOW, log_overflow
from crawl2llm.training.run import Run


def skipped_row(run: Run, step: int, loss: float) -> dict[str, Any]:
    """What losses.jsonl says of a step that was left out: what was `skipped`, the `reason`, and its `documents`' ids.

    An overflow of fp16's loss scale has nothing to do with its documents, and lists none.

    A collective call; process 0 alone reads the ids, and says so in the log.
    """
    if run.overflowed:
        if run.rank == 0:
            log_overflow(step)
        return {"skipped": "gradient", "reason": OVERFLOW, "documents": []}
    quantity, spike, ids = "gradient" if math.isfinite(loss) else "loss", {}, []
    reason, description = "not finite", "is not finite"
    if run.spiked and run.spikes is not None:
        quantity, reason, far = run.spikes.quantity, "spike", run.spikes.deviations
        many = f"{far:,.1f} standard deviations" if math.isfinite(far) else "far"  # all steps before were the same
        spike = {"deviations": round(far, 2) if math.isfinite(far) else None}
        description = f"is {many} above the mean of the last steps"
    with group.long_waits():
        if run.rank == 0:
            windows = run.step_windows(step)
            ids = (
                run.mix.document_ids(run.args.tokens, windows)
                if run.mix
                else data.document_ids(run.args.tokens, windows, run.plan.context)
            )
            some = first_few(ids, 3)
            log.warning(
                "step %s: the %s %s, its update is skipped (%s of at most %s); its %s documents: %s",
                f"{step:,}", quantity, description, len(run.skipped), run.settings.max_skipped_steps, f"{len(ids):,}", some,
            )  # fmt: skip
        dist.barrier()
    return {"skipped": quantity, "reason": reason, **spike, "documents": ids}


def report_notes(rows: list[dict[str, Any]], steps: int) -> list[str]:
    """A note for the report on the steps that losses.jsonl says were left out; none where there is none."""
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
