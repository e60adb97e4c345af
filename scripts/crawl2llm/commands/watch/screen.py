"""A run on a terminal: one live screen, drawn with rich."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from crawl2llm.chain.model_registry import MAKERS
from crawl2llm.chain.step import stage_of
from crawl2llm.commands.watch.lines import time_left_text
from crawl2llm.commands.watch.run import LATE_SECONDS, Run, Step, Task, documents_text, loss_text
from crawl2llm.core.console import escape_controls, format_duration, format_quantity

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table


BAR_WIDTH = 12  # columns
PER_SECOND = 2.0


def can_draw(stream: TextIO) -> bool:
    """Whether a live screen can be drawn: on a terminal that can move its cursor, with rich installed."""
    try:
        terminal = os.isatty(stream.fileno())
    except (OSError, ValueError):
        return False
    if not terminal or os.environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        import rich.live  # noqa: F401
    except ImportError:  # an environment with Snakemake alone
        return False
    return True


@contextlib.contextmanager
def redirect_output(log: Path) -> Iterator[TextIO]:
    """Send this process's stdout and stderr, and those of what it starts, into `log`; yields the screen that stderr was.

    The programs of a run print as they like; their own logs hold the same lines.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved_descriptors = [os.dup(number) for number in (1, 2)]
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for number in (1, 2):
        os.dup2(target, number)
    os.close(target)
    with open(os.dup(saved_descriptors[1]), "w", encoding="utf-8", errors="replace", buffering=1) as screen:
        try:
            yield screen
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, saved in zip((1, 2), saved_descriptors, strict=True):
                os.dup2(saved, number)
                os.close(saved)


class Screen:
    """Draws a run below everything that is printed with `print_above`."""

    def __init__(self, run: Run, stream: TextIO, color: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self.run, self.stream, self.log = run, stream, ""
        self.console: Console = Console(
            file=stream, force_terminal=True, no_color=None if color else True, highlight=False
        )
        self.live = Live(
            get_renderable=self.render, console=self.console, auto_refresh=False, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip

    def print_above(self, line: str) -> None:
        """A line above the screen."""
        self.console.print(escape_controls(line), markup=False, soft_wrap=True)

    def begin_run(self, log: str) -> None:
        """The run begins."""
        self.log = log
        self.live.start()

    def finish_task(self, name: str, step: Step) -> None:
        """Nothing is printed: the screen shows it."""

    def show_progress(self, now: float) -> None:
        """Draw again."""
        if self.live.is_started:
            self.live.refresh()

    def end_run(self, keep: bool) -> None:
        """The run is over; `keep` leaves its last state on the terminal."""
        if self.live.is_started:
            self.live.transient = not keep
            self.live.stop()

    def render(self) -> RenderableType:
        """The whole screen."""
        from rich.console import Group
        from rich.text import Text

        self._measure_terminal()
        now = time.monotonic()
        head = f"{self.run.tasks_done:,} of {format_quantity(self.run.total, 'task')}, {format_duration(now - self.run.began)}"
        left_text = time_left_text(self.run, now) if self.run.tasks_done < self.run.total else ""
        rows = [Text("; ".join(part for part in (head, left_text) if part), style="bold")]
        if kept_text := documents_text(self.run.kept_documents()):
            rows.append(Text(kept_text))
        trained = [task for name in MAKERS if name in self.run.steps for task in self.run.steps[name].running.values()]
        for task in trained:
            if line := training_text(task):
                rows.append(Text(f"{task}: {line}"))
        for row in rows:
            row.no_wrap, row.overflow = True, "ellipsis"
        return Group(
            *rows, self._stage_table(now), Text(f"log: {self.log}", style="dim", no_wrap=True, overflow="ellipsis")
        )

    def _stage_table(self, now: float) -> Table:
        """One row for each stage, so that it fits 24 lines."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table.grid(padding=(0, 1), expand=True)
        for justify in ("left", "left", "right", "right"):
            table.add_column(justify=justify, no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        for stage, steps in steps_by_stage(self.run).items():
            total, done = sum(step.total for step in steps.values()), sum(step.done for step in steps.values())
            busy = any(step.running for step in steps.values())
            style = "dim" if done < total else ""
            if busy:
                style = "bold"
            bar = ProgressBar(total=total, completed=done, width=BAR_WIDTH)
            table.add_row(
                stage, bar, f"{done:,}/{total:,}", elapsed_text(steps, now), activity_text(steps), style=style
            )
        return table

    def _measure_terminal(self) -> None:
        """The terminal's size now: rich would ask stdout and stderr, which belong to the log."""
        from rich.console import ConsoleDimensions

        try:
            size = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):
            return
        if size.columns:
            self.console.size = ConsoleDimensions(size.columns, size.lines)


def steps_by_stage(run: Run) -> dict[str, dict[str, Step]]:
    """Stage → its steps, in the workflow's order."""
    steps_of: dict[str, dict[str, Step]] = {}
    for name, step in run.steps.items():
        steps_of.setdefault(stage_of(name), {})[name] = step
    return steps_of


def elapsed_text(steps: dict[str, Step], now: float) -> str:
    """Seconds from a stage's first start to now, or to the end of its newest task while none runs; "" before it."""
    starts = [step.began for step in steps.values() if step.began is not None]
    if not starts:
        return ""
    if any(step.running for step in steps.values()):
        return format_duration(now - min(starts))
    return format_duration(max(step.newest_stop or 0 for step in steps.values()) - min(starts))


def activity_text(steps: dict[str, Step]) -> str:
    """What a stage is at, from the newest line of its newest task; what it kept, when it is over."""
    running = [task for step in steps.values() for task in step.running.values()]
    if running:
        newest = max(running, key=lambda task: task.began)
        more = f" (+{len(running) - 1})" if len(running) > 1 else ""
        message = f": {newest.tail.message}" if newest.tail and newest.tail.message else ""
        return f"{str(newest).split('.', 1)[-1]}{more}{message}"
    counted = [step for step in steps.values() if step.documents_read]
    if counted:
        read, kept = read_and_kept(counted)
        return f"{kept:,} of {read:,} kept"
    return next((step.result for step in reversed(steps.values()) if step.result and step.total == 1), "")


def read_and_kept(counted: list[Step]) -> tuple[int, int]:
    """(documents that a stage's first step read, those that its last step kept), of main alone.

    Of the last step, with all variants, if main has none there or the first step ran for fewer shards.
    """
    read, kept = counted[0].main_documents[0], counted[-1].main_documents[1]
    return (
        (read, kept)
        if counted[-1].main_documents[0] and kept <= read
        else (counted[-1].documents_read, counted[-1].documents_kept)
    )


def training_text(task: Task) -> str:
    """`loss 2.345 nats a token, 12,000 tokens/s, 3m10s left` of a training that runs."""
    if task.tail is None or task.tail.loss is None:
        return ""
    parts = [loss_text(task.step, task.tail.loss), task.tail.speed]
    if task.tail.time_left:
        seconds_left, written = task.tail.time_left
        if (now := seconds_left - (time.time() - written)) > -LATE_SECONDS:
            parts.append(f"{format_duration(max(0.0, now))} left")
    return ", ".join(part for part in parts if part)
