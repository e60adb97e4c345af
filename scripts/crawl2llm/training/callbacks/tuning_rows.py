"""Shows a tuning step by step: metrics.jsonl, and a line of progress."""

from __future__ import annotations

from crawl2llm.core.console import Progress
from crawl2llm.training.callback import Callback
from crawl2llm.training.metrics import Recorder
from crawl2llm.training.pair_run import Run
from crawl2llm.training.run_state import RunState


class TuningRows(Callback):
    """For process 0: a row of metrics.jsonl for each step, with what the run measured of it (`Run.extra_metrics`)."""

    def __init__(self, run: Run, recorder: Recorder) -> None:
        self.run, self.recorder = run, recorder

    def before_training(self, state: RunState) -> None:
        self.progress = Progress(self.run.last_step, "steps", done=state.done)

    def after_step(self, state: RunState) -> None:
        loss = state.row.get("loss")
        row = {
            "step": state.step,
            "loss": loss,
            "learning_rate": self.run.rate,
            "grad_norm": state.update.norm if state.update.applied else None,
            "seconds": round(self.recorder.seconds + state.clock.total_seconds, 3),
            "skipped_steps": len(state.skipped),
            **self.run.extra_metrics,
        }
        self.recorder.write_metrics(row)
        self.progress.add(1, "skipped" if loss is None else f"loss {loss:.3f}")
