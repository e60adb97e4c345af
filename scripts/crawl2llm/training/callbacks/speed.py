"""Shows the speed of a run while it trains: rows of metrics.jsonl, lines of the log, and after a few steps how long the rest takes."""

from __future__ import annotations

import math

import torch

from crawl2llm.core.console import format_duration, log
from crawl2llm.training import loss_scale, measures, schedule
from crawl2llm.training.callback import Callback
from crawl2llm.training.callbacks import process_stats
from crawl2llm.training.metrics import Recorder
from crawl2llm.training.run import Run
from crawl2llm.training.run_state import RunState

TIMED_STEPS = 10  # steps after which the rest is estimated
DAY = 86_400.0  # seconds


class Speed(Callback):
    """The speed of a run, on process 0. Comes after `ProcessStats` in the list: its rows have those measures."""

    def __init__(self, run: Run, recorder: Recorder, stats: process_stats.ProcessStats) -> None:
        self.run, self.recorder, self.stats = run, recorder, stats
        self.first = 0  # steps before this start, or before the roll back
        self.last_row_step = 0

    def before_training(self, state: RunState) -> None:
        self.first = self.last_row_step = state.done

    def after_step(self, state: RunState) -> None:
        step, steps, tokens = state.step, self.run.plan.steps, self.run.plan.tokens_until
        if step % self.run.settings.log_every == 0 or step == steps:
            self._record_row(state)
        if step == self.first + TIMED_STEPS and step < steps:
            spent = tokens(step) - tokens(self.first)
            log_time_left((tokens(steps) - tokens(step)) * state.clock.training_seconds / spent, self.run.device.type)

    def before_checkpoint(self, state: RunState) -> None:
        """Write the last row of a run that ends early between two rows."""
        if state.over and self.last_row_step < state.step:
            self._record_row(state)

    def _record_row(self, state: RunState) -> None:
        """A row of metrics.jsonl and a line of the log on the steps from `last_row_step`, exclusive, to this one.

        A loss that is not finite is in the line alone.
        """
        run, recorder, step, loss = self.run, self.recorder, state.step, state.loss
        steps, tokens = run.plan.steps, run.plan.tokens_until
        seconds, since = state.clock.lap(), tokens(step) - tokens(self.last_row_step)
        rate, rate_so_far = since / seconds, (tokens(step) - tokens(self.first)) / state.clock.training_seconds
        step_count = step - self.last_row_step
        product = torch.cuda.get_device_name() if run.device.type == "cuda" else ""
        mfu = measures.mfu(rate, run.flops, measures.peak_of(product, run.settings.precision), run.processes)
        row = {
            "step": step,
            "tokens": tokens(step) - tokens(run.begun),  # its own: those before may have been in other batches
            "loss": loss if math.isfinite(loss) else None,
            "learning_rate": schedule.learning_rate(step, steps, run.engine_settings),
            "grad_norm": state.update.norm if state.update.applied else None,
            **({} if state.update.balance is None else {"router_loss": float(state.update.balance)}),
            **({} if state.update.router_z is None else {"router_z_loss": float(state.update.router_z)}),
            **state.experts,
            "tokens_per_second": round(rate, 1),
            "mfu": mfu,
            "seconds": round(recorder.seconds + state.clock.total_seconds, 3),
            "skipped_steps": len(state.skipped),
            **loss_scale.metrics_row(run.engine.loss_scale(), state.overflows),
            **process_stats.per_device(rate, run.flops, run.processes, since // step_count),
            **self.stats.metrics_row(step, state.measures, seconds / step_count),
        }
        recorder.write_metrics(row, self.stats.labelled_measures(state.measures))
        log.info(
            "step %s/%s, loss %.4f, learning rate %.2e, %s tokens/s%s, %s left",
            f"{step:,}", f"{steps:,}", loss, row["learning_rate"], f"{rate:,.0f}",
            f", MFU {mfu:.1%}" if mfu else "", format_duration((tokens(steps) - tokens(step)) / rate_so_far),
        )  # fmt: skip
        if mfu and mfu > measures.MFU_ALARM:
            log.warning("an MFU of %.0f %% cannot be right: check the peak in gpus.py", 100 * mfu)
        self.last_row_step = step


def log_time_left(left: float, device: str) -> None:
    """Log how long the rest takes; more than a day on a CPU is a warning. left: seconds, by the first TIMED_STEPS."""
    log.info("about %s left by the first %d steps, validation not counted", format_duration(left), TIMED_STEPS)
    if device == "cpu" and left > DAY:
        log.warning(
            "THIS TRAINING TAKES %.1f DAYS on this CPU. Stop it (Ctrl-C; it resumes from its checkpoint) or lower "
            "pretrain.train.steps, .tokens or .epochs, make pretrain.train.model smaller, or train on a GPU "
            "(pretrain.train.device: cuda)", left / DAY,
        )  # fmt: skip
