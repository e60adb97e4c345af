"""A failed task in few lines: the rule, the shard, the program's own last words, the log's path."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

from crawl2llm.chain import exit_signals
from crawl2llm.commands.status import last_words, tail
from crawl2llm.core.console import AGAIN

MESSAGE = re.compile(r"^(?:\d\d:\d\d:\d\d [\w.]+(?: [\w.-]+)?: )?(?P<message>.*)$")
EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*")
DIED = re.compile(r"(?:died with <Signals\.\w+: (\d+)>|returned non-zero exit status (\d+))")
SLURM = re.compile(r"SLURM-job '(?P<job>[^']+)' failed, SLURM status is: '(?P<state>\w+)'")
MEMORY = re.compile(r"oom[-_ ]kill|OUT_OF_MEMORY|exceeded memory limit|Exceeded job memory limit", re.IGNORECASE)
STOPPED = "stopped by a signal"  # how a training ends that somebody else ended
MOST = 12  # lines of last words


@dataclass
class Failure:
    """One failed task: what Snakemake said of it, its logs (its program's first), what the machine says of memory."""

    step: str
    name: str
    logs: list[Path] = field(default_factory=list)
    said: str = ""  # by Snakemake or its executor
    status: int | None = None
    memory: str | None = None

    def __str__(self) -> str:
        return f"{self.step} {self.name}".rstrip()


def status_in(text: str) -> int | None:
    """The exit status in Snakemake's words about a command that failed."""
    match = DIED.search(text)
    return None if match is None else -int(match.group(1)) if match.group(1) else int(match.group(2))


def _bare(line: str) -> str:
    match = MESSAGE.match(line)
    return match["message"] if match else line


def words(lines: list[str]) -> list[str]:
    """The last words in a log: its last `error: …` to its end, or else the last exception, or that it was stopped, or its last line."""
    starts = [n for n, line in enumerate(lines) if _bare(line).startswith("error: ")]
    if not starts:
        starts = [n for n, line in enumerate(lines) if EXCEPTION.match(line)][-1:]
    if starts:
        return [_bare(line) for line in lines[starts[-1] :]][:MOST]
    if stopped := [_bare(line) for line in lines if _bare(line).startswith(STOPPED)]:
        return [stopped[-1], exit_signals.AGAIN]
    return [f"(no error in its log, which ends:) {_bare(lines[-1])}"] if lines else []


def of_this_start(lines: list[str]) -> list[str]:
    """The lines since a log was continued: the error of an earlier start is not why this one failed."""
    starts = [n for n, line in enumerate(lines) if _bare(line) == AGAIN]
    return lines[starts[-1] :] if starts else lines


def told(lines: list[str]) -> bool:
    """Whether a log says why the task failed."""
    return any(_bare(line).startswith(("error: ", STOPPED)) or EXCEPTION.match(line) for line in lines)


def rest(log: Path | None) -> str:
    """What a training's log says of where it was stopped, and which checkpoint it left; "" for any other task."""
    lines = [_bare(line) for line in of_this_start(tail(log))] if log else []
    return next((line for line in reversed(lines) if line.startswith(STOPPED)), "")


def ended_by_signal(failure: Failure) -> bool:
    """Whether a task did not fail, but was told to end: by a signal that a person or a batch system sends to a whole run."""
    number = exit_signals.of_status(failure.status) if failure.status is not None else None
    return number in (signal.SIGTERM, signal.SIGINT) or any(rest(path) for path in failure.logs[:1])


def block(failure: Failure, elsewhere: bool = False) -> list[str]:
    """The lines to show. elsewhere: as of `shortened`."""
    texts = {path: of_this_start(tail(path)) for path in failure.logs}
    own = next(iter(texts.values()), [])
    others = [line for path in failure.logs[1:] for line in texts[path]]
    status = failure.status if failure.status is not None else status_in("\n".join(others))
    number = exit_signals.of_status(status) if status is not None else None
    slurm = SLURM.search(failure.said)
    shown = []
    if number is not None and not any("was ended by SIG" in line for line in own):
        memory = failure.memory
        if memory is None and any(MEMORY.search(text) for text in (failure.said, *others)):
            memory = "SLURM says so"
        shown.append(f"the program {exit_signals.explained(number, failure.step, memory)}")
    elif told(own):
        shown += words(own)
    elif found := last_words(others):
        shown += found[-3:]
    else:
        shown += words(own) or [failure.said.strip() or "it left no message"]
    if number is None and slurm and slurm["state"] != "FAILED":
        shown.append(f"SLURM: job {slurm['job']} ended as {slurm['state']}")
        if MEMORY.search(slurm["state"]):
            lower = exit_signals.LOWER.get(failure.step, exit_signals.LOWER_ELSE)
            shown.append(f"Lower {lower}, or raise mem_mb of the rule{exit_signals.again(failure.step)}")
    paths = [path for path in failure.logs if path.exists()] or failure.logs
    return [
        f"{failure} failed:",
        *(f"  {line}" for line in shown),
        *(f"  log: {shortened(path, elsewhere)}" for path in paths),
    ]


def shortened(path: Path, elsewhere: bool = False) -> str:
    """A path relative to the working directory, where it is below it.

    elsewhere: the command was typed in another folder (--directory), where a relative path would lead to another file or to none.
    """
    if elsewhere:
        return str(path.absolute())
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
