"""Spikes: losses or gradients far above those of the steps before.

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

import torch
import torch.distributed as dist

from crawl2llm.training.pretraining_settings import ResolvedSettings

LEAST_STEPS = 20  # steps before any is judged: OLMo-core's

Pair = tuple[float, float]  # a step's mean loss in nats a token, and the norm of its gradient


class SpikeDetector:
    """Says of each step whether it is a spike. `recent` are the last `window` steps' (loss, norm), oldest first: a checkpoint has them."""

    def __init__(self, sigma: float, window: int, recent: Iterable[Pair]) -> None:
        self.sigma, self.window = sigma, window
        self.recent = deque([(float(loss), float(norm)) for loss, norm in recent], maxlen=window)
        # Of the last step, if it was a spike: `loss` or `gradient`, and how many deviations.
        self.quantity, self.deviations = "", 0.0

    def is_spike(self, loss: float, norm: float) -> bool:
        """Whether a step with this loss and norm, both finite, is a spike; it is among those before the next from now on."""
        self.quantity = ""
        if len(self.recent) + 1 >= max(LEAST_STEPS, self.window // 2):
            losses, norms = zip(*self.recent, strict=True)
            for quantity, value, before in (("loss", loss, losses), ("gradient", norm, norms)):
                spread = stdev(before)
                if not self.quantity and value > fmean(before) + self.sigma * spread:
                    self.quantity = quantity
                    self.deviations = (value - fmean(before)) / spread if spread else math.inf
        self.recent.append((loss, norm))
        return bool(self.quantity)

    def may_update(self, loss: torch.Tensor, norm: float) -> bool:
        """Whether an update may be made: the same on every process, by the mean loss of all. A collective call.

        loss: of this process's part of the batch. norm: of the whole gradient, finite.
        """
        both = torch.stack([loss, loss.new_tensor(norm)]) / dist.get_world_size()
        dist.all_reduce(both)
        mean, whole = both.tolist()
        return not self.is_spike(mean, whole)


def spike_detector(settings: ResolvedSettings, recent: Iterable[Pair]) -> SpikeDetector | None:
    """By the settings of pretrain.train; None if spikes are not looked for. recent: of the checkpoint."""
    sigma = settings.spike_sigma
    return SpikeDetector(sigma, settings.spike_window, recent) if sigma else None
