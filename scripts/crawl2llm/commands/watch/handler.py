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
from crawl2llm.commands.watch.failure import Failure, block, ended_by_signal, rest, shortened, status_in
from crawl2llm.commands.watch.lines import Lines, pages
from crawl2llm.commands.watch.run import Run, step_of
from crawl2llm.commands.watch.screen import PER_SECOND, Screen, can_draw, redirected
from crawl2llm.core import run_folder
from crawl2llm.core.console import clean, duration, put, quantity
from crawl2llm.core.root import ROOT

CHOICE = "CRAWL2LLM_SCREEN"
CHOICES = ("live", "lines", "snakemake")
# In the environment where what follows names the pages, as `make demo` does.
SUMMARY = "CRAWL2LLM_SUMMARY"
DEFAULT = "DefaultStreamHandler"  # the name that Snakemake gives its own
# Snakemake's own messages that a person waits for; all others are in the log.
TOLD_TO_END = "Will exit after finishing"  # after a SIGTERM
NOTHING = "Nothing to be done"
SHOWN = (NOTHING, "Creating conda environment", "Pulling singularity image", TOLD_TO_END)
# Snakemake's messages that say nothing where the failures are shown.
GENERAL = ("At least one job did not complete successfully.", "Exiting because a job execution failed.")
# Snakemake's words around a refusal of the project's own, or one without a place: which line of the Snakefile said it.
REFUSAL = re.compile(r'(?:WorkflowError|Busy)(?: in file ".*rules/common\.smk", line \d+)?:\n')
PLACE = re.compile(r'\n  File ".*", line \d+, in .*')
# Its words for a target, or a name after --until, that there is not.
NO_RULE = re.compile(r"MissingRuleException:\nNo rule to produce (\S+) \(if you use input functions")


def plain(text: str) -> str:
    """`error: …` in place of a refusal with its place in the Snakefile, or of a rule that there is not; any other text as it is."""
    if missing := NO_RULE.match(text):
        name, rules = missing[1], [step.replace(".", "_") for step in STEPS]
        near = difflib.get_close_matches(name.replace(".", "_"), rules, n=1)
        hint = f" (did you mean {near[0]}?)" if near else f"; rules are {', '.join(rules)}" if "/" not in name else ""
        return f"error: {name} is no rule, nor a file that one makes{hint}"
    if system := run_folder.explain(text):
        return f"error: {system}"
    found = REFUSAL.match(text)
    return f"error: {PLACE.sub('', text[found.end() :])}" if found else text


class Plain(logging.Formatter):
    """Snakemake's formatter of what a person sees, refusals made plain; its log keeps its own."""

    def __init__(self, own: logging.Formatter) -> None:
        super().__init__()
        self.own = own

    def format(self, record: logging.LogRecord) -> str:
        return plain(self.own.format(record))


def attach(workflow: Any) -> None:
    """Take the place of Snakemake's own handler for a run's messages; its other commands and its jobs keep theirs, made plain.

    Raises WorkflowError where CRAWL2LLM_SCREEN is none of CHOICES.
    """
    from snakemake.exceptions import WorkflowError
    from snakemake.logging import logger
    from snakemake.settings.enums import Quietness

    settings = workflow.output_settings
    quiet = set(settings.quiet or ())
    own = next((handler for handler in logger.handlers if handler.name == DEFAULT), None)
    if workflow.is_main_process and own is not None and own.formatter is not None:
        own.setFormatter(Plain(own.formatter))
    if workflow.is_main_process:
        logging.raiseExceptions = False  # a log that cannot be written must not bury the error that says why
    if not workflow.is_main_process or settings.dryrun or Quietness.ALL in quiet:
        return
    choice = os.environ.get(CHOICE, "")
    if choice and choice not in CHOICES:
        raise WorkflowError(f"{CHOICE} is {choice!r}; allowed are {', '.join(CHOICES)}")
    if own is None or settings.verbose or settings.printshellcmds or settings.debug_dag:
        choice = "snakemake"
    stream = sys.stdout if settings.stdout else sys.stderr
    handler = Handler(workflow, own, stream, choice, bool(quiet & {Quietness.RULES, Quietness.PROGRESS}))
    if own is not None and choice != "snakemake":
        logger.removeHandler(own)
    logger.addHandler(handler)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler.interrupt)
        sys.excepthook = handler.uncaught


class Handler(logging.Handler):
    """Shows a run. `close`, which Snakemake calls when it has said everything, writes the last words."""

    def __init__(
        self, workflow: Any, default: logging.Handler | None, stream: TextIO, choice: str, quiet: bool
    ) -> None:
        super().__init__()
        self.name = "crawl2llm"
        self.workflow, self.default, self.stream, self.choice, self.quiet = workflow, default, stream, choice, quiet
        self.begun = self.closed = False
        self.run = Run(Path.cwd(), time.monotonic())
        self.view: Screen | Lines = Lines(self.run, self._print)
        self.failures: dict[int, Failure] = {}
        self.told: set[int] = set()  # jobs of whose failure a line has told
        self.errors: list[str] = []
        self.interrupted = self.terminated = self.idle = False
        self.memory = exit_signals.counters()
        self.over = threading.Event()
        self.thread: threading.Thread | None = None
        self.kept = contextlib.ExitStack()
        self.log: str | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether the command was typed in another folder than the run's (--directory)."""
        return self.workflow.overwrite_workdir is not None

    # --- Snakemake's messages

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = str(getattr(record, "event", None) or "")
            if event == "workflow_started":
                self.begun = True
            if not self.begun:  # the workflow is being read, or another command than a run: as ever
                self._forward(record)
                return
            self._take(event, record)
        except Exception:
            self.handleError(record)

    def _forward(self, record: logging.LogRecord) -> None:
        if self.default is None or self.choice == "snakemake" or not self.default.filter(record):
            return
        if os.environ.get("NO_COLOR"):  # which Snakemake does not know
            self._print(self.default.format(record))
        else:
            self.default.handle(record)

    def _open(self) -> None:
        """The first task is about to start: open the screen, and send what programs print into the log."""
        if self.choice == "snakemake" or self.thread is not None:
            return
        live = not self.quiet and (self.choice == "live" or (self.choice != "lines" and can_draw(self.stream)))
        logs = [path for path in self.workflow.logger_manager.get_logfile() if str(path).endswith(".snakemake.log")]
        if logs:
            self.log = shortened(Path(logs[0]), self.elsewhere)
            self.stream = self.kept.enter_context(redirected(Path(logs[0])))
        if live:
            self.view = Screen(self.run, self.stream, color=not self.workflow.output_settings.nocolor)
        if not self.quiet:
            self.view.planned(self.log or "logs")
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _take(self, event: str, record: Any) -> None:
        now = time.monotonic()
        if record.getMessage().startswith(TOLD_TO_END):
            if self.terminated:  # each of Snakemake's processes says it
                return
            self.terminated = True
        self.idle |= record.getMessage().startswith(NOTHING)
        if (number := getattr(record, early_cutoff.JOB, None)) is not None:
            self.run.unchanged(number)
            return
        if event == "run_info" and not self.run.steps:
            self.run.plan(record.stats)
        elif event == "job_started":
            self._open()
            self._tell_failures()
        elif event == "job_info":
            self.run.start(record, now)
        elif event == "job_finished":
            self._finish(record.job_id, now)
        elif event == "job_error":
            self._fail(record, now)
        elif event == "group_error":
            for info in record.job_error_info:
                self._fail(SimpleNamespace(**info, shellcmd=None, rule_msg=record.msg), now)
        elif event == "error" or record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage())
        elif record.levelno >= logging.WARNING or (not event and self._wanted(record)):
            self.say(record.getMessage())

    def _wanted(self, record: logging.LogRecord) -> bool:
        """Whether a message without an event is for the screen: the project's own, and few of Snakemake's."""
        return record.getMessage().startswith(SHOWN) or Path(record.pathname).is_relative_to(ROOT / "scripts")

    def _finish(self, number: int, now: float) -> None:
        for step in self.run.steps.values():
            if number in step.running:
                self._warn(self.run.look_at(step.running[number], step))
        self.failures.pop(number, None)
        self.told.discard(number)
        if (found := self.run.stop(number, now, finished=True)) and not self.quiet:
            self.view.finished(found[0].step, found[1])

    def _fail(self, record: Any, now: float) -> None:
        stopped = self.run.stop(record.jobid, now, finished=False)
        command = " ".join(str(record.shellcmd or "").split())
        mine = [text for text in self.errors if command and command in " ".join(text.split())]
        self.errors = [text for text in self.errors if text not in mine]
        said = str(record.rule_msg or "")
        self.failures.pop(record.jobid, None)
        self.told.discard(record.jobid)
        self.failures[record.jobid] = Failure(
            step=step_of(record.rule_name),
            name=stopped[0].name if stopped else "",
            logs=[Path(str(path)) for path in record.log],
            said=said,
            status=next((status_in(text) for text in mine), None),
            memory=exit_signals.lack_of_memory(self.memory),
        )

    # --- the screen

    def _print(self, line: str) -> None:
        self.stream.write(clean(line) + "\n")
        self.stream.flush()

    def _wrapped(self, line: str) -> str:
        """A line broken between words where the terminal would break it inside one; paths stay whole."""
        if not isinstance(self.view, Screen):
            return line
        width = self.view.console.width
        parts = textwrap.wrap(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        return "\n".join(parts) or line

    def say(self, message: str) -> None:
        """A message between the others."""
        if self.choice == "snakemake":
            return  # Snakemake's own handler shows it
        if isinstance(self.view, Screen):
            self.view.say(message)
        else:
            self._print(message)

    def _warn(self, lines: list[str]) -> None:
        for line in lines:
            self.say(line)

    def _tell_failures(self) -> None:
        """The run continues in spite of failures: say so now, and everything at the end."""
        new = [failure for number, failure in self.failures.items() if number not in self.told]
        self.told |= self.failures.keys()
        if new and not self.interrupted:
            self.say(
                f"failed: {', '.join(map(str, new[:3]))}{' and more' * (len(new) > 3)}; the run continues, and says why at its end"
            )

    def _watch(self) -> None:
        """Looks at the logs and draws, until the run is over."""
        looked, said = 0.0, False
        while not self.over.wait(1 / PER_SECOND):
            # Snakemake holds the lock while it closes the handler.
            if self.lock is None or not self.lock.acquire(timeout=0.2):
                continue
            with contextlib.suppress(Exception):  # what only shows must not end a run
                try:
                    now = time.monotonic()
                    busy = sum(len(step.running) for step in self.run.steps.values())
                    if now - looked > max(1.0, busy / 20):  # a file system that many nodes share
                        looked = now
                        self._warn(self.run.look())
                    if self.interrupted and not said:
                        said = True
                        self.say("stopping: tasks end now, a training writes a checkpoint first")
                    if not self.quiet:
                        self.view.tick(now)
                finally:
                    self.lock.release()

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C: the first one stops the run; more of them do not cut off what is being saved."""
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt

    def uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """In the place of `sys.excepthook`: where Ctrl-C hits Snakemake outside of its scheduler, no traceback follows."""
        if not issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)

    def close(self) -> None:
        """The last words. Called once by Snakemake, and again by Python at its end."""
        if self.closed:
            return super().close()
        self.closed = True
        self.over.set()
        if self.thread is not None:
            self.thread.join(timeout=5)
        failed = bool(self.failures or self.errors or self.interrupted)
        try:
            self.view.stop(keep=not failed)
            for line in self.last_words():
                self._print(self._wrapped(line))
        except (OSError, ValueError):  # the terminal is gone
            pass
        except Exception:  # Snakemake would ignore it
            self.kept.close()
            put(traceback.format_exc().rstrip(), file=sys.stderr)
        self.kept.close()
        super().close()

    def _ended_by_signal(self) -> bool:
        """Whether the run was told to end by a signal, and nothing failed but for that."""
        return self.terminated and bool(self.failures) and all(map(ended_by_signal, self.failures.values()))

    def _left(self) -> list[str]:
        """A line for each training that was stopped: its step, and where its checkpoint is."""
        running = {str(task): task.log for step in self.run.steps.values() for task in step.running.values()}
        logs = running | {str(one): one.logs[0] for one in self.failures.values() if one.logs}
        return [f"{name}: {words}" for name, log in logs.items() if (words := rest(log))]

    def last_words(self) -> list[str]:
        """What is said when Snakemake has said everything."""
        if not self.begun:
            return ["stopped by Ctrl-C, before a task was started"] if self.interrupted else []
        done = f"{self.run.done:,} of {quantity(self.run.total, 'task')} done in {duration(time.monotonic() - self.run.began)}"
        if self.interrupted or self._ended_by_signal():
            by = "Ctrl-C" if self.interrupted else "SIGTERM (signal 15)"
            kept = ", and kept" * bool(self.run.done)
            return [f"stopped by {by}, {done}{kept}; start the same command again to resume", *self._left()]
        shown = [line for failure in self.failures.values() for line in block(failure, self.elsewhere)]
        if self.choice == "snakemake":
            return ["", *shown] if shown else []
        errors = list(dict.fromkeys(plain(text) for text in self.errors))
        others = [text for text in errors if not any(words in text for words in GENERAL)]
        shown += others if others or shown else errors
        if others and self.log:
            shown.append(f"log: {self.log}")
        if shown or self.quiet:
            return shown
        named = [] if os.environ.get(SUMMARY) else pages(self.run, self.elsewhere)
        return [done, *named] if self.thread is not None else named * self.idle
