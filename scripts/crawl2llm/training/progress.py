"""What a run says of its pace while it trains: rows of metrics.jsonl, lines of the log, and after a few steps how long the rest takes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator

import torch

from crawl2llm.core.console import format_duration, log
from crawl2llm.training import loss_scale, measures, process_stats, schedule
from crawl2llm.training.metrics import Recorder
from crawl2llm.training.run import Run

TIMED_STEPS = 10  # steps after which the rest is foretold
DAY = 86_400.0  # seconds


class Clock:
    """Time of training alone: what stands in `pause`, validations and checkpoints, does not count."""

    def __init__(self) -> None:
        self.start_time = self.lap_time = time.monotonic()
        self.pauses = 0.0

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """A part of the loop that is no training."""
        before = time.monotonic()
        yield
        pause = time.monotonic() - before
        self.start_time += pause
        self.lap_time += pause
        self.pauses += pause

    @property
    def training_seconds(self) -> float:
        """Seconds of training."""
        return time.monotonic() - self.start_time

    @property
    def total_seconds(self) -> float:
        """Seconds, pauses among them."""
        return self.training_seconds + self.pauses

    def lap(self) -> float:
        """Seconds of training since the last lap."""
        now = time.monotonic()
        since, self.lap_time = now - self.lap_time, now
        return since


class Pace:
    """The pace of a run from `run.done` on, on process 0."""

    def __init__(self, run: Run, recorder: Recorder, clock: Clock, vital: process_stats.Vitals) -> None:
        self.run, self.recorder, self.clock, self.vital = run, recorder, clock, vital
        # Steps: before the first of this attempt, and the last that a row is of.
        self.first = self.last_row_step = run.done

    def record_step(self, step: int, loss: float, everyone: list[dict[str, float]]) -> None:
        """Called after each step. loss: in nats a token. everyone: what `Vitals.gather_measures` returned."""
        steps, tokens = self.run.plan.steps, self.run.plan.tokens_until
        if step % self.run.settings.log_every == 0 or step == steps:
            self._record_row(step, loss, everyone)
            self.last_row_step = step
        if step == self.first + TIMED_STEPS and step < steps:
            spent = tokens(step) - tokens(self.first)
            log_time_left((tokens(steps) - tokens(step)) * self.clock.training_seconds / spent, self.run.device.type)

    def record_last_step(self, step: int, loss: float, everyone: list[dict[str, float]]) -> None:
        """Called after `record_step` if the run ends early with this step: a row of the last steps, if that was none of `log_every`."""
        if self.last_row_step < step:
            self._record_row(step, loss, everyone)
            self.last_row_step = step

    def _record_row(self, step: int, loss: float, everyone: list[dict[str, float]]) -> None:
        """A row of metrics.jsonl and a line of the log on the steps from `last_row_step`, exclusive, to `step`.

        A loss that is not finite is in the line alone.
        """
        run, recorder = self.run, self.recorder
        steps, tokens = run.plan.steps, run.plan.tokens_until
        seconds, since = self.clock.lap(), tokens(step) - tokens(self.last_row_step)
        rate, rate_so_far = since / seconds, (tokens(step) - tokens(self.first)) / self.clock.training_seconds
        step_count = step - self.last_row_step
        product = torch.cuda.get_device_name() if run.device.type == "cuda" else ""
        mfu = measures.mfu(rate, run.flops, measures.peak_of(product, run.settings.precision), run.processes)
        row = {
            "step": step,
            "tokens": tokens(step) - tokens(run.begun),  # its own: those before may have been in other batches
            "loss": loss if math.isfinite(loss) else None,
            "learning_rate": schedule.learning_rate(step, steps, run.engine_settings),
            "grad_norm": run.update.norm if run.update.applied else None,
            **({} if run.update.balance is None else {"router_loss": float(run.update.balance)}),
            "tokens_per_second": round(rate, 1),
            "mfu": mfu,
            "seconds": round(recorder.seconds + self.clock.total_seconds, 3),
            "skipped_steps": len(run.skipped),
            **loss_scale.metrics_row(run.engine.loss_scale(), run.overflows),
            **process_stats.per_device(rate, run.flops, run.processes, since // step_count),
            **self.vital.metrics_row(step, everyone, seconds / step_count),
        }
        recorder.write_metrics(row, self.vital.labelled_measures(everyone))
        log.info(
            "step %s/%s, loss %.4f, learning rate %.2e, %s tokens/s%s, %s left",
            f"{step:,}", f"{steps:,}", loss, row["learning_rate"], f"{rate:,.0f}",
            f", MFU {mfu:.1%}" if mfu else "", format_duration((tokens(steps) - tokens(step)) / rate_so_far),
        )  # fmt: skip
        if mfu and mfu > measures.MFU_ALARM:
            log.warning("an MFU of %.0f %% is not to be believed: check the peak in gpus.py", 100 * mfu)


def log_time_left(left: float, device: str) -> None:
    """Log how long the rest takes; more than a day on a CPU is a warning. left: seconds, by the first TIMED_STEPS."""
    log.info("about %s left by the first %d steps, validation not counted", format_duration(left), TIMED_STEPS)
    if device == "cpu" and left > DAY:
        log.warning(
            "THIS TRAINING TAKES %.1f DAYS on this CPU. Stop it (Ctrl-C; it resumes from its checkpoint) or lower "
            "pretrain.train.steps, .tokens or .epochs, make pretrain.train.model smaller, or train on a GPU "
            "(pretrain.train.device: cuda)", left / DAY,
        )  # fmt: skip
