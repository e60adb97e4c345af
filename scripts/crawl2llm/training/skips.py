"""Updates that are left out: where loss or gradient is not finite, or far above those of the steps before.

A spike is a loss or a norm of the gradient more than `sigma` standard deviations above the mean of the last `window` steps, as in
OLMo-core (src/olmo_core/optim/skip_step_optimizer.py, which also skips what lies as far below). Steps that were left out count in that
mean too, as there, so a level that stays is no spike for long. Nothing is judged before there are max(20, window / 2) steps, the one
that is judged included.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from crawl2llm.core.console import log
from crawl2llm.core.phrases import first_few
from crawl2llm.training import data, group
from crawl2llm.training.loss_scale import OVERFLOW, log_overflow

if TYPE_CHECKING:
    from crawl2llm.training.run import Run

LEAST = 20  # steps before any is judged: OLMo-core's

Pair = tuple[float, float]  # a step's mean loss in nats a token, and the norm of its gradient


class Spikes:
    """Says of each step whether it is a spike. `recent` are the last `window` steps' (loss, norm), oldest first: a checkpoint has them."""

    def __init__(self, sigma: float, window: int, recent: Iterable[Pair]) -> None:
        self.sigma, self.window = sigma, window
        self.recent = deque([(float(loss), float(norm)) for loss, norm in recent], maxlen=window)
        # Of the last step, if it was a spike: `loss` or `gradient`, and how many deviations.
        self.quantity, self.deviations = "", 0.0

    def judge_step(self, loss: float, norm: float) -> bool:
        """Whether a step with this loss and norm, both finite, is a spike; it is among those before the next from now on."""
        self.quantity = ""
        if len(self.recent) + 1 >= max(LEAST, self.window // 2):
            losses, norms = zip(*self.recent, strict=True)
            for quantity, value, before in (("loss", loss, losses), ("gradient", norm, norms)):
                spread = stdev(before)
                if not self.quantity and value > fmean(before) + self.sigma * spread:
                    self.quantity = quantity
                    self.deviations = (value - fmean(before)) / spread if spread else math.inf
        self.recent.append((loss, norm))
        return bool(self.quantity)


def spike_detector(settings: dict[str, Any], recent: Iterable[Pair]) -> Spikes | None:
    """By the settings of pretrain.train; None where spikes are not looked for. recent: of the checkpoint."""
    sigma = settings["spike_sigma"]
    return Spikes(sigma, settings["spike_window"], recent) if sigma else None


def update_fits(run: Run, loss: torch.Tensor, norm: float) -> bool:
    """Whether an update may be made: the same on every process, by the mean loss of all. A collective call.

    loss: of this process's part of the batch. norm: of the whole gradient, finite.
    """
    assert run.spikes is not None
    both = torch.stack([loss, loss.new_tensor(norm)]) / run.processes
    dist.all_reduce(both)
    mean, whole = both.tolist()
    return not run.spikes.judge_step(mean, whole)


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
        spike, description = (
            {"deviations": round(far, 2) if math.isfinite(far) else None},
            f"is {many} above the mean of the last steps",
        )
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
                f"{step:,}", quantity, description, len(run.skipped), run.args.max_skipped_steps, f"{len(ids):,}", some,
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
