"""The schedule of a run: how many steps, how a global batch is cut, the learning rate at each step."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crawl2llm.core.errors import InputError
from crawl2llm.training.engine_settings import EngineSettings

if TYPE_CHECKING:
    from crawl2llm.training.pretraining_settings import ResolvedSettings, TrainSettings

SECTION = "pretrain.train"


@dataclass(frozen=True)
class Plan:
    """A run in numbers. A step is one optimizer update over `sequences` windows of `context` tokens, or fewer under a ramp."""

    steps: int
    sequences: int  # windows of a global batch
    context: int  # predictions a window
    windows: int  # windows of one epoch
    # Of a ramp: steps before each stage, and the windows of each of its steps; () is one stage.
    stages: tuple[tuple[int, int], ...] = ()

    @property
    def tokens_per_step(self) -> int:
        """Predictions of one optimizer update, over all processes; under a ramp of the last."""
        return self.sequences * self.context

    def window_span(self, step: int) -> tuple[int, int]:
        """(windows of all steps before step 1, 2, …, windows of this step)."""
        stages = self.stages or ((0, self.sequences),)
        ends = [*(first for first, _ in stages[1:]), step]
        before = sum(max(0, min(end, step - 1) - first) * each for (first, each), end in zip(stages, ends, strict=True))
        return before, next(each for first, each in reversed(stages) if first < step)

    def tokens_until(self, step: int) -> int:
        """Predictions of the steps up to `step`."""
        return self.window_span(step + 1)[0] * self.context

    @property
    def window_divisor(self) -> int:
        """The largest number of windows that every step has a multiple of."""
        return math.gcd(self.sequences, *(each for _, each in self.stages))

    @property
    def epochs(self) -> float:
        """How often the run sees each window."""
        return self.tokens_until(self.steps) / self.context / self.windows


def check_schedule(settings: TrainSettings, data: int) -> None:
    """InputError for a budget, a batch or a ramp that no corpus goes with, as far as numbers are set.

    data: processes that read different windows.
    """
    training_budget(settings)
    check_ramp(ramp := settings.batch_ramp)
    context, batch = settings.model.context, settings.global_batch_tokens
    if not (isinstance(context, int) and isinstance(batch, int)):
        return
    check_batch(settings)
    whole = batch // context
    stages = [(0, max(1, round(part * whole))) for _, part in ramp]
    accumulation_steps(Plan(1, whole, context, 1, tuple(stages)), settings.micro_batch, data)


def check_batch(settings: TrainSettings) -> None:
    """InputError for a global batch that is not a multiple of the context."""
    context, batch = settings.model.context, settings.global_batch_tokens
    if isinstance(context, int) and isinstance(batch, int) and batch % context:
        raise InputError(
            f"{SECTION}.global_batch_tokens is {batch}; it must be a multiple of {SECTION}.model.context = {context}; "
            f"the nearest are {nearest_multiples(batch, context)}"
        )


def training_budget(settings: TrainSettings) -> dict[str, float]:
    """{its name: its value} of the one of steps, tokens and epochs that is given; {} for none. Raises InputError for more than one."""
    epochs = None if settings.epochs == "auto" else settings.epochs
    values = {"steps": settings.steps, "tokens": settings.tokens, "epochs": epochs}
    budgets = {key: value for key, value in values.items() if value is not None}
    if len(budgets) > 1:
        shown = ", ".join(f"{SECTION}.{key} = {value}" for key, value in budgets.items())
        raise InputError(f"{shown}: give one of steps, tokens and epochs, and leave the others null")
    return budgets


def check_ramp(ramp: list[list[float]]) -> None:
    """InputError for a batch_ramp that does not begin at 0, rise, and end with the whole batch."""
    if not ramp:
        return
    shares, parts = zip(*ramp, strict=True)
    faults = {
        f"it begins at {shares[0]:g} of the steps, not at 0": shares[0] != 0,
        f"it ends with {parts[-1]:g} of the batch, not with 1": parts[-1] != 1,
        "the shares of the steps do not rise": list(shares) != sorted(set(shares)),
        "the shares of the batch do not rise": list(parts) != sorted(set(parts)),
    }
    if wrong := [words for words, so in faults.items() if so]:
        raise InputError(
            f"{SECTION}.batch_ramp is {ramp}: {'; '.join(wrong)}. It is pairs of a share of the steps, and the share of "
            "global_batch_tokens from there on, such as [[0, 0.25], [0.1, 0.5], [0.2, 1]]"
        )


def make_plan(settings: ResolvedSettings, tokens: int, windows: int | None = None) -> Plan:
    """The plan for a training stream of `tokens` tokens. windows: those of an epoch, if the stream is not cut every `context` tokens.

    The budget is `steps`, `tokens` or `epochs`, rounded up to whole steps; one epoch where none is given.
    Raises InputError if more than one is given, where the global batch is not a multiple of the context, where a ramp does not rise, or
    where the stream holds no window.
    """
    check_batch(settings)
    context, batch = settings.model.context, settings.global_batch_tokens
    windows = (tokens - 1) // context if windows is None else windows
    if windows < 1:
        raise InputError(
            f"the training shards hold {tokens:,} tokens, too few for one window of {SECTION}.model.context = {context} "
            "tokens and the one after it"
        )
    budget = training_budget(settings)
    check_ramp(ramp := settings.batch_ramp)

    def plan_for(steps: int) -> Plan:
        stages = [(round(share * steps), max(1, round(part * (batch // context)))) for share, part in ramp]
        return Plan(steps, batch // context, context, windows, tuple(stages))

    if settings.steps is not None:
        return plan_for(settings.steps)
    wanted = budget["tokens"] if "tokens" in budget else budget.get("epochs", 1) * windows * context
    steps = max(1, math.ceil(wanted / batch))
    if not ramp:
        return plan_for(steps)
    # One step more trains on more tokens, also where it moves the stages: the fewest steps that reach the budget.
    most = math.ceil(wanted / (plan_for(steps).stages[0][1] * context))  # if all have the batch of the first
    return plan_for(
        bisect_left(range(most), wanted, lo=steps, key=lambda number: plan_for(number).tokens_until(number))
    )


def fitting_micro_batch(run_plan: Plan, micro_batch: int, processes: int) -> int:
    """The largest micro-batch up to `micro_batch` that divides a global batch that is `auto`; itself if none does."""
    sizes = (size for size in range(micro_batch, 0, -1) if run_plan.window_divisor % (size * processes) == 0)
    return next(sizes, micro_batch)


def accumulation_steps(run_plan: Plan, micro_batch: int, processes: int) -> int:
    """Micro-batches of each process in one step; under a ramp in the last.

    Raises InputError, with the nearest global batches that would do, if they do not divide evenly.
    """
    unit = micro_batch * processes
    if run_plan.sequences % unit:
        size = unit * run_plan.context
        raise InputError(
            f"{SECTION}.global_batch_tokens is {run_plan.tokens_per_step}; it must be a multiple of "
            f"{SECTION}.micro_batch × processes × {SECTION}.model.context = {micro_batch} × {processes} × {run_plan.context} "
            f"= {size}; the nearest are {nearest_multiples(run_plan.tokens_per_step, size)}"
        )
    for _, each in run_plan.stages:
        if each % unit:
            near = " and ".join(
                f"{int(number) / run_plan.sequences:g}" for number in nearest_multiples(each, unit).split(" and ")
            )
            raise InputError(
                f"{SECTION}.batch_ramp has steps of {each} of the {run_plan.sequences} sequences of {SECTION}.global_batch_tokens; they "
                f"must be a multiple of {SECTION}.micro_batch × processes = {micro_batch} × {processes} = {unit}: the nearest shares are "
                f"{near}; a smaller {SECTION}.micro_batch allows others"
            )
    return run_plan.sequences // unit


def nearest_multiples(value: int, unit: int) -> str:
    """The multiples of `unit` around `value`, in words: `8192 and 12288`; only the first where `value` is below it."""
    below = value // unit * unit
    return f"{below} and {below + unit}" if below else f"{unit}"


def learning_rate(step: int, steps: int, settings: EngineSettings) -> float:
    """The learning rate of step 1 … `steps`.

    A linear warm-up over the share `warmup`, then `schedule`: `cosine` or `linear` down to `min_learning_rate_ratio`
    of the peak at the last step, `wsd` (constant, then linear down over the last share `decay`; Hu et al. 2024,
    https://arxiv.org/abs/2404.06395), or `constant`.
    """
    peak, floor = settings.learning_rate, settings.min_learning_rate_ratio
    warmup = round(settings.warmup * steps)
    if step <= warmup:
        return peak * step / warmup
    if settings.schedule == "constant":
        return peak
    start = warmup
    if settings.schedule == "wsd":
        start = max(warmup, steps - round(settings.decay * steps))
        if step <= start:
            return peak
    done = (step - start) / max(steps - start, 1)
    share = (1 + math.cos(math.pi * done)) / 2 if settings.schedule == "cosine" else 1 - done
    return peak * (floor + (1 - floor) * share)
