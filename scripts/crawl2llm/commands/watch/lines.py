"""A run without a terminal: a line for each step that is done, and one now and then while nothing ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from crawl2llm.commands.watch.run import Run, Step, documents_text
from crawl2llm.core.console import format_duration, format_quantity, singular_or_plural
from crawl2llm.core.phrases import and_more

MOST_NAMES = 3  # names in a list; of more, their number
FIRST_PAUSE = 60.0  # seconds without a line after which one says how far the run is
PAUSE_SHARE = 0.05  # of the run's time: later lines are further apart, so that days of waiting take hundreds of lines, not thousands


# The pages to open after a run, of the first variant: what a line calls one, the step that makes it, its path.
PAGES = (
    ("report", "report.render", "results/main/report/render/report.html"),
    ("all variants compared", "report.compare", "results/main/report/compare/compare.html"),
)


def page_lines(run: Run, elsewhere: bool = False) -> list[str]:
    """A line for each page that is there, where the run made one of them or had nothing to do.

    elsewhere: the run's folder is not that of the command (--directory). Paths are absolute then: in the command's folder the same path
    may be another run's page.
    """
    is_shown = not run.steps or any(step in run.steps for _, step, _ in PAGES)
    folder = run.folder if elsewhere else Path()
    return [f"{name}: {folder / path}" for name, _, path in PAGES if is_shown and (run.folder / path).is_file()]


class Lines:
    """Writes a run's lines with `say`. It knows nothing of Snakemake."""

    def __init__(self, run: Run, say: Callable[[str], None]) -> None:
        self.run, self.write = run, say
        self.last_line_at = run.began

    def write_timed(self, line: str) -> None:
        """A line with the time of day."""
        self.last_line_at = time.monotonic()
        self.write(f"{time.strftime('%H:%M:%S')} {line}")

    def begin_run(self, log: str) -> None:
        """The run begins."""
        self.write_timed(
            f"{format_quantity(self.run.total, 'task')} of {format_quantity(len(self.run.steps), 'step')}; everything they say: {log}"
        )

    def finish_task(self, name: str, step: Step) -> None:
        """A task is over; says so where it was the step's last one."""
        if step.ended is None or step.began is None:
            return
        width = max([17, *map(len, self.run.steps)])
        parts = [
            f"{name:<{width}} {step.done:>3,} {singular_or_plural(step.done, 'task'):5} {format_duration(step.ended - step.began):>6}"
        ]
        if step.unchanged:
            parts.append("as before" if step.unchanged == step.total else f"{step.unchanged:,} as before")
        if step.documents_read:
            parts.append(f"{step.documents_kept:,} of {step.documents_read:,} kept")
        if step.result and step.total == 1:  # of several, one would stand for all
            parts.append(step.result)
        self.write_timed("  ".join(parts))

    def show_progress(self, now: float) -> None:
        """Called every second or so."""
        if now - self.last_line_at < max(FIRST_PAUSE, PAUSE_SHARE * (now - self.run.began)):
            return
        parts = [f"{self.run.tasks_done:,} of {format_quantity(self.run.total, 'task')}"]
        running = [task for step in self.run.steps.values() for task in step.running.values()]
        if running:
            newest = max(running, key=lambda task: task.began)
            message = newest.tail.message if newest.tail else ""
            steps_text = and_more(dict.fromkeys(task.step for task in running), MOST_NAMES)
            parts.append(f"running {steps_text}: {message}" if message else f"running {steps_text}")
        if kept_text := documents_text(self.run.kept_documents()):
            parts.append(kept_text)
        parts.append(time_left_text(self.run, now))
        self.write_timed("; ".join(part for part in parts if part))

    def end_run(self, keep: bool) -> None:
        """Nothing is open."""


def time_left_text(run: Run, now: float) -> str:
    """`about 4m10s left`, with the steps of which nothing was measured yet, or that take longer than they should."""
    seconds_left, unknown, late = run.time_left(now, time.time())
    doubts = [f"{and_more(unknown, MOST_NAMES)} not measured yet"] if unknown else []
    if late:
        verb = "takes" if len(late) == 1 else "take"
        doubts.append(f"{and_more(late, MOST_NAMES)} {verb} longer than expected")
    doubts_text = "; ".join(doubts)
    if seconds_left is None or (late and not round(seconds_left)):
        return doubts_text
    return f"{'at least' if doubts_text else 'about'} {format_duration(seconds_left)} left" + (
        f" ({doubts_text})" if doubts_text else ""
    )
