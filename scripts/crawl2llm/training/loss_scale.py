"""Dynamic loss scaling for fp16: the loss is multiplied before the backward pass, so that small gradients are not rounded to 0.

As Micikevicius et al. 2018 (https://arxiv.org/abs/1710.03740, section 3.2) and as both torch.amp.GradScaler and DeepSpeed do it: an
overflow halves the scale and its update is left out; `loss_scale_window` updates without one double it. torch's GradScaler looks at the
gradients that a process has; here the norm of the whole gradient says it, the same on every process, sharded or not.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from crawl2llm.core.console import log
from crawl2llm.training.checks import FP8, FP16
from crawl2llm.training.engine_settings import EngineSettings

# What is computed with beside fp32, by `precision`.
LOW_PRECISION = {"bf16": torch.bfloat16, FP16: torch.float16, FP8: torch.bfloat16}
OVERFLOW = "overflow"  # in losses.jsonl, the reason of an update that was left out for the scale
LEAST_SCALE = 1.0  # the smallest scale: an overflow there is none, but a gradient that is not finite

State = tuple[float, int]  # the scale of the next backward pass, and updates that count toward its doubling


class LossScale:
    """The scale of the next backward pass (`value`), and how many updates in a row count toward its doubling (`steady`)."""

    def __init__(self, power: int, window: int) -> None:
        self.value, self.window, self.steady = 2.0**power, window, 0

    def update(self, overflow: bool) -> None:
        """After a step: halve the scale for an overflow, double it after `window` updates in a row without one."""
        self.steady = 0 if overflow else self.steady + 1
        if overflow:
            self.value = max(LEAST_SCALE, self.value / 2)
        elif self.steady >= self.window:  # more in checkpoints of DeepSpeed by an earlier version
            self.value, self.steady = 2 * self.value, 0


def loss_scale_for(settings: EngineSettings) -> LossScale | None:
    """By the settings of a training; None for other precisions."""
    if settings.precision != FP16:
        return None
    return LossScale(settings.loss_scale_power, settings.loss_scale_window)


def is_overflow(scale: float | None, loss: float, norm: float | None, applied: bool) -> bool:
    """Whether an update was left out for the loss scale alone: no sign that a training diverges.

    scale: of the step's backward pass; None without one. loss: the mean of all processes. norm: of the whole gradient. A loss that is not
    finite, and a gradient that is not finite at the smallest scale, are skipped steps as in any other precision.
    """
    if scale is None or applied or not math.isfinite(loss):
        return False
    return scale > LEAST_SCALE and (norm is None or not math.isfinite(norm))


def checkpoint_facts(state: State | None, overflows: int) -> dict[str, Any]:
    """What a checkpoint says of the scale, by its names there; {} for other precisions."""
    if state is None:
        return {}
    return {"loss_scale": state[0], "steady": state[1], "overflows": overflows}


def metrics_row(state: State | None, overflows: int) -> dict[str, float]:
    """What a row of metrics.jsonl says of the scale; {} for other precisions."""
    return {} if state is None else {"loss_scale": state[0], "overflow_steps": overflows}


def log_overflow(step: int) -> None:
    """Log that the update of a step is left out for the loss scale. For process 0."""
    log.info(
        "step %s: the gradient overflowed in fp16, its update is left out; the loss scale is halved",
        f"{step:,}",
    )


def report_notes(state: State | None, overflows: int, steps: int) -> list[str]:
    """A note for the report on the updates that were left out for the loss scale; none without any."""
    if state is None or not overflows:
        return []
    return [
        f"{overflows:,} of {steps:,} updates were left out for an overflow of the gradient in fp16, after each of which the loss scale was "
        f"halved; it ended at {state[0]:,.0f}."
    ]
