"""The place between Snakemake's messages and what a person sees; `attach` is called while the workflow is read.

What it uses of Snakemake: the events of its logger plugin interface, its logger, the name of its own handler, and a few of its
messages. Each has a test in tests/workflow/test_watch.py, which says what broke when the version moves.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import re
import signal
import sys
import textwrap
import threading
import time
import traceback
from pathlib import Path
from types import FrameType, SimpleNamespace, TracebackType
from typing import Any, TextIO

from crawl2llm.chain import early_cutoff, exit_signals
from crawl2llm.chain.steps import STEPS
from crawl2llm.commands.watch.failure import (
    Failure,
    failure_lines,
    short_path,
    status_in,
    stop_message,
    was_ended_by_signal,
)
from crawl2llm.commands.watch.lines import Lines, page_lines
from crawl2llm.commands.watch.run import Run, step_of
from crawl2llm.commands.watch.screen import PER_SECOND, Screen, can_draw, redirect_output
from crawl2llm.core import run_folder
from crawl2llm.core.console import escape_controls, format_duration, format_quantity, print_line
from crawl2llm.core.root import ROOT

SCREEN_VARIABLE = "CRAWL2LLM_SCREEN"
CHOICES = ("live", "lines", "snakemake")
# In the environment where what follows names the pages, as `make demo` does.
SUMMARY_VARIABLE = "CRAWL2LLM_SUMMARY"
DEFAULT_HANDLER = "DefaultStreamHandler"  # the name that Snakemake gives its own
# Snakemake's own messages that a person waits for; all others are in the log.
TOLD_TO_END = "Will exit after finishing"  # after a SIGTERM
NOTHING_TO_DO = "Nothing to be done"
SHOWN_MESSAGES = (NOTHING_TO_DO, "Creating conda environment", "Pulling singularity image", TOLD_TO_END)
# Snakemake's messages that say nothing where the failures are shown.
GENERAL_MESSAGES = ("At least one job did not complete successfully.", "Exiting because a job execution failed.")
# Snakemake's words around a refusal of the project's own, or one without a place: which line of the Snakefile said it.
REFUSAL = re.compile(r'(?:WorkflowError|RunInProgressError)(?: in file ".*rules/common\.smk", line \d+)?:\n')
PLACE_IN_SNAKEFILE = re.compile(r'\n  File ".*", line \d+, in .*')
# Its words for a target, or a name after --until, that there is not.
NO_RULE = re.compile(r"MissingRuleException:\nNo rule to produce (\S+) \(if you use input functions")


def plain_error(text: str) -> str:
    """`error: …` in place of a refusal with its place in the Snakefile, or of a rule that there is not; any other text as it is."""
    if missing := NO_RULE.match(text):
        name, rules = missing[1], [step.replace(".", "_") for step in STEPS]
        near = difflib.get_close_matches(name.replace(".", "_"), rules, n=1)
        hint = ""
        if near:
            hint = f" (did you mean {near[0]}?)"
        elif "/" not in name:
            hint = f"; rules are {', '.join(rules)}"
        return f"error: {name} is neither a rule nor a file that a rule makes{hint}"
    if system := run_folder.explain_disk_error(text):
        return f"error: {system}"
    refusal = REFUSAL.match(text)
    return f"error: {PLACE_IN_SNAKEFILE.sub('', text[refusal.end() :])}" if refusal else text


class PlainFormatter(logging.Formatter):
    """Snakemake's formatter of what a person sees, refusals made plain; its log keeps its own."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        return plain_error(self.formatter.format(record))


def attach(workflow: Any) -> None:
    """Take the place of Snakemake's own handler for a run's messages; its other commands and its jobs keep theirs, made plain.

    Raises WorkflowError if CRAWL2LLM_SCREEN is none of CHOICES.
    """
    from snakemake.exceptions import WorkflowError
    from snakemake.logging import logger
    from snakemake.settings.enums import Quietness

    settings = workflow.output_settings
    quiet = set(settings.quiet or ())
    default_handler = next((handler for handler in logger.handlers if handler.name == DEFAULT_HANDLER), None)
    if workflow.is_main_process and default_handler is not None and default_handler.formatter is not None:
        default_handler.setFormatter(PlainFormatter(default_handler.formatter))
    if workflow.is_main_process:
        logging.raiseExceptions = False  # a log that cannot be written must not bury the error that says why
    if not workflow.is_main_process or settings.dryrun or Quietness.ALL in quiet:
        return
    choice = os.environ.get(SCREEN_VARIABLE, "")
    if choice and choice not in CHOICES:
        raise WorkflowError(f"{SCREEN_VARIABLE} is {choice!r}; allowed are {', '.join(CHOICES)}")
    if default_handler is None or settings.verbose or settings.printshellcmds or settings.debug_dag:
        choice = "snakemake"
    stream = sys.stdout if settings.stdout else sys.stderr
    handler = Handler(workflow, default_handler, stream, choice, bool(quiet & {Quietness.RULES, Quietness.PROGRESS}))
    if default_handler is not None and choice != "snakemake":
        logger.removeHandler(default_handler)
    logger.addHandler(handler)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler.on_interrupt)
        sys.excepthook = handler.on_uncaught


class Handler(logging.Handler):
    """Shows a run. `close`, which Snakemake calls when it has said everything, writes the last words."""

    def __init__(
        self, workflow: Any, default: logging.Handler | None, stream: TextIO, choice: str, quiet: bool
    ) -> None:
        super().__init__()
        self.name = "crawl2llm"
        self.workflow, self.default, self.stream, self.choice, self.quiet = workflow, default, stream, choice, quiet
        self.has_begun = self.is_closed = False
        self.run = Run(Path.cwd(), time.monotonic())
        self.view: Screen | Lines = Lines(self.run, self._print_line)
        self.failures: dict[int, Failure] = {}
        self.told_jobs: set[int] = set()  # jobs of whose failure a line has told
        self.errors: list[str] = []
        self.interrupted = self.terminated = self.nothing_to_do = False
        self.memory = exit_signals.oom_kill_counts()
        self.run_over = threading.Event()
        self.thread: threading.Thread | None = None
        self.open_resources = contextlib.ExitStack()
        self.log: str | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the command was typed in another folder than the run's (--directory)."""
        return self.workflow.overwrite_workdir is not None

    # --- Snakemake's messages

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = str(getattr(record, "event", None) or "")
            if event == "workflow_started":
                self.has_begun = True
            if not self.has_begun:  # the workflow is being read, or another command than a run: as ever
                self._forward_record(record)
                return
            self._take_event(event, record)
        except Exception:
            self.handleError(record)

    def _forward_record(self, record: logging.LogRecord) -> None:
        if self.default is None or self.choice == "snakemake" or not self.default.filter(record):
            return
        if os.environ.get("NO_COLOR"):  # which Snakemake does not know
            self._print_line(self.default.format(record))
        else:
            self.default.handle(record)

    def _open_screen(self) -> None:
        """The first task is about to start: open the screen, and send what programs print into the log."""
        if self.choice == "snakemake" or self.thread is not None:
            return
        live = not self.quiet and (self.choice == "live" or (self.choice != "lines" and can_draw(self.stream)))
        logs = [path for path in self.workflow.logger_manager.get_logfile() if str(path).endswith(".snakemake.log")]
        if logs:
            self.log = short_path(Path(logs[0]), self.is_elsewhere)
            self.stream = self.open_resources.enter_context(redirect_output(Path(logs[0])))
        if live:
            self.view = Screen(self.run, self.stream, color=not self.workflow.output_settings.nocolor)
        if not self.quiet:
            self.view.begin_run(self.log or "logs")
        self.thread = threading.Thread(target=self._watch_logs, daemon=True)
        self.thread.start()

    def _take_event(self, event: str, record: Any) -> None:
        now = time.monotonic()
        if record.getMessage().startswith(TOLD_TO_END):
            if self.terminated:  # each of Snakemake's processes says it
                return
            self.terminated = True
        self.nothing_to_do |= record.getMessage().startswith(NOTHING_TO_DO)
        if (number := getattr(record, early_cutoff.UNCHANGED_JOB, None)) is not None:
            self.run.mark_unchanged(number)
            return
        if event == "run_info" and not self.run.steps:
            self.run.set_plan(record.stats)
        elif event == "job_started":
            self._open_screen()
            self._report_failures()
        elif event == "job_info":
            self.run.start_task(record, now)
        elif event == "job_finished":
            self._finish_task(record.job_id, now)
        elif event == "job_error":
            self._note_failure(record, now)
        elif event == "group_error":
            for info in record.job_error_info:
                self._note_failure(SimpleNamespace(**info, shellcmd=None, rule_msg=record.msg), now)
        elif event == "error" or record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage())
        elif record.levelno >= logging.WARNING or (not event and self._is_for_screen(record)):
            self.show_message(record.getMessage())

    def _is_for_screen(self, record: logging.LogRecord) -> bool:
        """Whether a message without an event is for the screen: the project's own, and few of Snakemake's."""
        return record.getMessage().startswith(SHOWN_MESSAGES) or Path(record.pathname).is_relative_to(ROOT / "scripts")

    def _finish_task(self, number: int, now: float) -> None:
        for step in self.run.steps.values():
            if number in step.running:
                self._show_messages(self.run.read_log(step.running[number], step))
        self.failures.pop(number, None)
        self.told_jobs.discard(number)
        if (stopped := self.run.stop_task(number, now, finished=True)) and not self.quiet:
            self.view.finish_task(stopped[0].step, stopped[1])

    def _note_failure(self, record: Any, now: float) -> None:
        stopped = self.run.stop_task(record.jobid, now, finished=False)
        command = " ".join(str(record.shellcmd or "").split())
        own_errors = [text for text in self.errors if command and command in " ".join(text.split())]
        self.errors = [text for text in self.errors if text not in own_errors]
        message = str(record.rule_msg or "")
        self.failures.pop(record.jobid, None)
        self.told_jobs.discard(record.jobid)
        self.failures[record.jobid] = Failure(
            step=step_of(record.rule_name),
            name=stopped[0].name if stopped else "",
            logs=[Path(str(path)) for path in record.log],
            executor_message=message,
            status=next((status_in(text) for text in own_errors), None),
            memory=exit_signals.lack_of_memory(self.memory),
        )

    # --- the screen

    def _print_line(self, line: str) -> None:
        self.stream.write(escape_controls(line) + "\n")
        self.stream.flush()

    def _wrap_line(self, line: str) -> str:
        """A line broken between words where the terminal would break it inside one; paths stay whole."""
        if not isinstance(self.view, Screen):
            return line
        width = self.view.console.width
        parts = textwrap.wrap(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        return "\n".join(parts) or line

    def show_message(self, message: str) -> None:
        """A message between the others."""
        if self.choice == "snakemake":
            return  # Snakemake's own handler shows it
        if isinstance(self.view, Screen):
            self.view.print_above(message)
        else:
            self._print_line(message)

    def _show_messages(self, lines: list[str]) -> None:
        for line in lines:
            self.show_message(line)

    def _report_failures(self) -> None:
        """The run continues in spite of failures: say so now, and everything at the end."""
        new = [failure for number, failure in self.failures.items() if number not in self.told_jobs]
        self.told_jobs |= self.failures.keys()
        if new and not self.interrupted:
            more = " and more" if len(new) > 3 else ""
            self.show_message(
                f"failed: {', '.join(map(str, new[:3]))}{more}; the run continues, and says why at its end"
            )

    def _watch_logs(self) -> None:
        """Looks at the logs and draws, until the run is over."""
        looked, is_announced = 0.0, False
        while not self.run_over.wait(1 / PER_SECOND):
            # Snakemake holds the lock while it closes the handler.
            if self.lock is None or not self.lock.acquire(timeout=0.2):
                continue
            with contextlib.suppress(Exception):  # what only shows must not end a run
                try:
                    now = time.monotonic()
                    busy = sum(len(step.running) for step in self.run.steps.values())
                    if now - looked > max(1.0, busy / 20):  # a file system that many nodes share
                        looked = now
                        self._show_messages(self.run.read_logs())
                    if self.interrupted and not is_announced:
                        is_announced = True
                        self.show_message("stopping: tasks end now, a training writes a checkpoint first")
                    if not self.quiet:
                        self.view.show_progress(now)
                finally:
                    self.lock.release()

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C: the first one stops the run; more of them do not cut off what is being saved."""
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt

    def on_uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """In the place of `sys.excepthook`: where Ctrl-C hits Snakemake outside of its scheduler, no traceback follows."""
        if not issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)

    def close(self) -> None:
        """The last words. Called once by Snakemake, and again by Python at its end."""
        if self.is_closed:
            return super().close()
        self.is_closed = True
        self.run_over.set()
        if self.thread is not None:
            self.thread.join(timeout=5)
        failed = bool(self.failures or self.errors or self.interrupted)
        try:
            self.view.end_run(keep=not failed)
            for line in self.last_words():
                self._print_line(self._wrap_line(line))
        except (OSError, ValueError):  # the terminal is gone
            pass
        except Exception:  # Snakemake would ignore it
            self.open_resources.close()
            print_line(traceback.format_exc().rstrip(), file=sys.stderr)
        self.open_resources.close()
        super().close()

    def _ended_by_signal(self) -> bool:
        """Whether the run was told to end by a signal, and nothing failed except that."""
        return self.terminated and bool(self.failures) and all(map(was_ended_by_signal, self.failures.values()))

    def _stop_lines(self) -> list[str]:
        """A line for each training that was stopped: its step, and where its checkpoint is."""
        running = {str(task): task.log for step in self.run.steps.values() for task in step.running.values()}
        logs = running | {str(failure): failure.logs[0] for failure in self.failures.values() if failure.logs}
        return [f"{name}: {words}" for name, log in logs.items() if (words := stop_message(log))]

    def last_words(self) -> list[str]:
        """What is said when Snakemake has said everything."""
        if not self.has_begun:
            return ["stopped by Ctrl-C, before a task was started"] if self.interrupted else []
        elapsed = format_duration(time.monotonic() - self.run.began)
        done = f"{self.run.tasks_done:,} of {format_quantity(self.run.total, 'task')} done in {elapsed}"
        if self.interrupted or self._ended_by_signal():
            signal_name = "Ctrl-C" if self.interrupted else "SIGTERM (signal 15)"
            kept_note = ", and kept" if self.run.tasks_done else ""
            return [
                f"stopped by {signal_name}, {done}{kept_note}; start the same command again to resume",
                *self._stop_lines(),
            ]
        lines = [line for failure in self.failures.values() for line in failure_lines(failure, self.is_elsewhere)]
        if self.choice == "snakemake":
            return ["", *lines] if lines else []
        errors = list(dict.fromkeys(plain_error(text) for text in self.errors))
        specific = [text for text in errors if not any(words in text for words in GENERAL_MESSAGES)]
        lines += specific if specific or lines else errors
        if specific and self.log:
            lines.append(f"log: {self.log}")
        if lines or self.quiet:
            return lines
        page_texts = [] if os.environ.get(SUMMARY_VARIABLE) else page_lines(self.run, self.is_elsewhere)
        return [done, *page_texts] if self.thread is not None else page_texts * self.nothing_to_do
