"""A run without a terminal: a line for each step that is done, and one now and then while nothing ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from crawl2llm.commands.watch.run import Run, Step, documents, listed
from crawl2llm.core.console import duration, form, quantity

FIRST = 60.0  # seconds without a line after which one says how far the run is
SHARE = 0.05  # of the run's time: later lines are further apart, so that days of waiting take hundreds of lines, not thousands


# The pages to open after a run, of the first variant: what a line calls one, the step that makes it, its path.
PAGES = (
    ("report", "report.render", "results/main/report/render/report.html"),
    ("all variants compared", "report.compare", "results/main/report/compare/compare.html"),
)


def pages(run: Run, elsewhere: bool = False) -> list[str]:
    """A line for each page that is there, where the run made one of them or had nothing to do.

    elsewhere: the run's folder is not that of the command (--directory). Paths are absolute then: in the command's folder the same path
    may be another run's page.
    """
    wanted = not run.steps or any(step in run.steps for _, step, _ in PAGES)
    folder = run.folder if elsewhere else Path()
    return [f"{name}: {folder / path}" for name, _, path in PAGES if wanted and (run.folder / path).is_file()]


class Lines:
    """Writes a run's lines with `say`. It knows nothing of Snakemake."""

    def __init__(self, run: Run, say: Callable[[str], None]) -> None:
        self.run, self.write = run, say
        self.spoke = run.began

    def say(self, line: str) -> None:
        """A line with the time of day."""
        self.spoke = time.monotonic()
        self.write(f"{time.strftime('%H:%M:%S')} {line}")

    def planned(self, log: str) -> None:
        """The run begins."""
        self.say(
            f"{quantity(self.run.total, 'task')} of {quantity(len(self.run.steps), 'step')}; everything they say: {log}"
        )

    def finished(self, name: str, step: Step) -> None:
        """A task is over; says so where it was the step's last one."""
        if step.ended is None or step.began is None:
            return
        width = max([17, *map(len, self.run.steps)])
        parts = [f"{name:<{width}} {step.done:>3,} {form(step.done, 'task'):5} {duration(step.ended - step.began):>6}"]
        if step.unchanged:
            parts.append("as before" if step.unchanged == step.total else f"{step.unchanged:,} as before")
        if step.read:
            parts.append(f"{step.kept:,} of {step.read:,} kept")
        if step.result and step.total == 1:  # of several, one would stand for all
            parts.append(step.result)
        self.say("  ".join(parts))

    def tick(self, now: float) -> None:
        """Called every second or so."""
        if now - self.spoke < max(FIRST, SHARE * (now - self.run.began)):
            return
        parts = [f"{self.run.done:,} of {quantity(self.run.total, 'task')}"]
        running = [task for step in self.run.steps.values() for task in step.running.values()]
        if running:
            newest = max(running, key=lambda task: task.began)
            what = newest.tail.message if newest.tail else ""
            parts.append(f"running {listed(dict.fromkeys(task.step for task in running))}" + f": {what}" * bool(what))
        if kept := documents(self.run.kept()):
            parts.append(kept)
        parts.append(remaining(self.run, now))
        self.say("; ".join(part for part in parts if part))

    def stop(self, keep: bool) -> None:
        """Nothing is open."""


def remaining(run: Run, now: float) -> str:
    """`about 4m10s left`, with the steps of which nothing was measured yet, or that take longer than they should."""
    left, unknown, late = run.left(now, time.time())
    missing = [f"{listed(unknown)} not measured yet"] if unknown else []
    if late:
        verb = "takes" if len(late) == 1 else "take"
        missing.append(f"{listed(late)} {verb} longer than expected")
    words = "; ".join(missing)
    if left is None or (late and not round(left)):
        return words
    return f"{'at least' if words else 'about'} {duration(left)} left" + (f" ({words})" if words else "")
