"""A failed task in few lines: the rule, the shard, the program's own last words, the log's path."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

from crawl2llm.chain import exit_signals
from crawl2llm.commands.status import last_lines, last_words
from crawl2llm.core.console import RESTART_LINE

MESSAGE = re.compile(r"^(?:\d\d:\d\d:\d\d [\w.]+(?: [\w.-]+)?: )?(?P<message>.*)$")
EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*")
EXIT_WORDS = re.compile(r"(?:died with <Signals\.\w+: (\d+)>|returned non-zero exit status (\d+))")
SLURM = re.compile(r"SLURM-job '(?P<job>[^']+)' failed, SLURM status is: '(?P<state>\w+)'")
MEMORY = re.compile(r"oom[-_ ]kill|OUT_OF_MEMORY|exceeded memory limit|Exceeded job memory limit", re.IGNORECASE)
STOPPED = "stopped by a signal"  # how a training ends that somebody else ended
MOST_LINES = 12  # lines of last words


@dataclass
class Failure:
    """One failed task: what Snakemake said of it, its logs (its program's first), what the machine says of memory."""

    step: str
    name: str
    logs: list[Path] = field(default_factory=list)
    executor_message: str = ""  # by Snakemake or its executor
    status: int | None = None
    memory: str | None = None

    def __str__(self) -> str:
        return f"{self.step} {self.name}".rstrip()


def status_in(text: str) -> int | None:
    """The exit status in Snakemake's words about a command that failed."""
    match = EXIT_WORDS.search(text)
    if match is None:
        return None
    return -int(match.group(1)) if match.group(1) else int(match.group(2))


def _without_prefix(line: str) -> str:
    match = MESSAGE.match(line)
    return match["message"] if match else line


def error_lines(lines: list[str]) -> list[str]:
    """The last words in a log: its last `error: …` to its end, or else the last exception, or that it was stopped, or its last line."""
    starts = [n for n, line in enumerate(lines) if _without_prefix(line).startswith("error: ")]
    if not starts:
        starts = [n for n, line in enumerate(lines) if EXCEPTION.match(line)][-1:]
    if starts:
        return [_without_prefix(line) for line in lines[starts[-1] :]][:MOST_LINES]
    if stopped := [_without_prefix(line) for line in lines if _without_prefix(line).startswith(STOPPED)]:
        return [stopped[-1], exit_signals.RESUME_TEXT]
    return [f"(no error in its log, which ends:) {_without_prefix(lines[-1])}"] if lines else []


def lines_of_this_start(lines: list[str]) -> list[str]:
    """The lines since a log was continued: the error of an earlier start is not why this one failed."""
    starts = [n for n, line in enumerate(lines) if _without_prefix(line) == RESTART_LINE]
    return lines[starts[-1] :] if starts else lines


def has_error(lines: list[str]) -> bool:
    """Whether a log says why the task failed."""
    return any(_without_prefix(line).startswith(("error: ", STOPPED)) or EXCEPTION.match(line) for line in lines)


def stop_message(log: Path | None) -> str:
    """What a training's log says of where it was stopped, and which checkpoint it left; "" for any other task."""
    lines = [_without_prefix(line) for line in lines_of_this_start(last_lines(log))] if log else []
    return next((line for line in reversed(lines) if line.startswith(STOPPED)), "")


def was_ended_by_signal(failure: Failure) -> bool:
    """Whether a task did not fail, but was told to end: by a signal that a person or a batch system sends to a whole run."""
    number = exit_signals.signal_of_status(failure.status) if failure.status is not None else None
    return number in (signal.SIGTERM, signal.SIGINT) or any(stop_message(path) for path in failure.logs[:1])


def failure_lines(failure: Failure, elsewhere: bool = False) -> list[str]:
    """The lines to show. elsewhere: as of `short_path`."""
    texts = {path: lines_of_this_start(last_lines(path)) for path in failure.logs}
    program_lines = next(iter(texts.values()), [])
    other_lines = [line for path in failure.logs[1:] for line in texts[path]]
    status = failure.status if failure.status is not None else status_in("\n".join(other_lines))
    number = exit_signals.signal_of_status(status) if status is not None else None
    slurm = SLURM.search(failure.executor_message)
    error_words = []
    if number is not None and not any("was ended by SIG" in line for line in program_lines):
        memory = failure.memory
        if memory is None and any(MEMORY.search(text) for text in (failure.executor_message, *other_lines)):
            memory = "SLURM says so"
        error_words.append(f"the program {exit_signals.signal_explanation(number, failure.step, memory)}")
    elif has_error(program_lines):
        error_words += error_lines(program_lines)
    elif final_words := last_words(other_lines):
        error_words += final_words[-3:]
    else:
        error_words += error_lines(program_lines) or [failure.executor_message.strip() or "it left no message"]
    if number is None and slurm and slurm["state"] != "FAILED":
        error_words.append(f"SLURM: job {slurm['job']} ended as {slurm['state']}")
        if MEMORY.search(slurm["state"]):
            lower = exit_signals.LOWER.get(failure.step, exit_signals.LOWER_ELSE)
            error_words.append(f"Lower {lower}, or raise mem_mb of the rule{exit_signals.resume_hint(failure.step)}")
    paths = [path for path in failure.logs if path.exists()] or failure.logs
    return [
        f"{failure} failed:",
        *(f"  {line}" for line in error_words),
        *(f"  log: {short_path(path, elsewhere)}" for path in paths),
    ]


def short_path(path: Path, elsewhere: bool = False) -> str:
    """A path relative to the working directory, if it is below it.

    elsewhere: the command was typed in another folder (--directory), where a relative path would lead to another file or to none.
    """
    if elsewhere:
        return str(path.absolute())
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
