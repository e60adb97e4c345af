"""Logging and progress: plain lines with a rate and the time left, on the terminal and in the step's log.

Several tasks share one terminal, so a line is written every few seconds instead of a bar redrawn in place. What pages, files and servers
say is shown without what a terminal would obey, and messages without secrets.
"""

from __future__ import annotations

import logging
import mmap
import re
import struct
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from crawl2llm.core import secret_masking

log = logging.getLogger("crawl2llm")

# C0 and C1 without tab and newline, what turns the direction of text around or breaks lines, and halves of surrogate pairs.
CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape_controls(text: str) -> str:
    """A text for the screen: with `\\u001b` in the place of an escape, and so on, also within JSON."""
    return CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def safe_message(text: str) -> str:
    """A message for the screen and for logs: clean, and without secrets."""
    return escape_controls(secret_masking.mask(text))


def print_line(text: object = "", file: TextIO | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print what a command says; nothing else prints. file: stdout without one; elsewhere, on stderr, are messages."""
    print(safe_message(str(text)) if file else escape_controls(str(text)), file=file, end=end, flush=flush)


def singular_or_plural(number: Any, singular: str, plural: str = "") -> str:
    """The form of a noun or verb beside a number: `singular` for 1, `plural` for all else, a number that is not known too.

    plural: if it is not the singular with an `s`.
    """
    return singular if number == 1 else plural or f"{singular}s"


def format_quantity(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun: `1 task`, `1,000 tasks`. plural: as of `singular_or_plural`."""
    return f"{number:,} {singular_or_plural(number, singular, plural)}"


class MaskedStream:
    """A stream of text without secrets, line by line: for what libraries, warnings and threads print, which no formatter sees.

    What is not Python's, such as a library in C that writes to the file, does not come here: who starts such a process masks what it
    relays.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.partial_line = stream, ""

    def write(self, text: str) -> int:
        *lines, rest = (self.partial_line + text).split("\n")
        self.partial_line = rest
        if lines:
            self.stream.write(secret_masking.mask("\n".join(lines)) + "\n")
        return len(text)

    def flush(self) -> None:
        if self.partial_line:
            self.stream.write(secret_masking.mask(self.partial_line))
            self.partial_line = ""
        self.stream.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def mask_stderr() -> None:
    """Have this process print no secret to stderr."""
    if not isinstance(sys.stderr, MaskedStream):
        sys.stderr = MaskedStream(sys.stderr)


class LineFormatter(logging.Formatter):
    """`15:04:05 language.score 00003: 12 documents`; a warning is called one, and commands/watch shows it on the screen."""

    def format(self, record: logging.LogRecord) -> str:
        return safe_message(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.levelno == logging.WARNING:
            record.message = f"warning: {record.message}"
        return super().formatMessage(record)


def log_unexpected_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What `sys.excepthook` does: the traceback goes into the log as well, and the error itself is the last line."""
    if issubclass(kind, KeyboardInterrupt):
        log.info("interrupted")
        return
    log.info("%s", "".join(traceback.format_exception(kind, error, trace)).rstrip())
    log.error("error: %s: %s", kind.__name__, error)


def set_up_logging(name: str, *files: Path) -> None:
    """Send the program's messages, headed by its step and task, to stderr and to the ends of `files`.

    An error that nothing catches goes there too.
    """
    mask_stderr()
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(file, mode="a", encoding="utf-8"))
    log.handlers[:] = handlers
    set_log_prefix(name)
    log.setLevel(logging.INFO)
    log.propagate = False
    sys.excepthook = log_unexpected_error
    logging.raiseExceptions = False  # a log that cannot be written must not bury the error that says why


def set_log_prefix(name: str) -> None:
    """Head the messages from here on with another name: the next shard's."""
    for handler in log.handlers:
        handler.setFormatter(LineFormatter(f"%(asctime)s {name}: %(message)s", "%H:%M:%S"))


def format_duration(seconds: float) -> str:
    """`75` → `1m15s`; from two days on `2d00h`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24:,}d{hours % 24:02d}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


RESTART_LINE = "started again; the lines above are of earlier starts"  # in a log that is continued


class Board:
    """How far each of a task's shards is, in memory that its processes share: state, items done and in all, and what they are."""

    CELL = struct.Struct("<qqq40s")
    WAITS, RUNS, MADE, REUSED = range(4)

    def __init__(self, shards: list[str]) -> None:
        self.places = {name: number for number, name in enumerate(shards)}
        self.memory = mmap.mmap(-1, self.CELL.size * len(shards))
        self.start = self.last_logged = time.monotonic()
        self.own_place = 0  # the shard of this process

    def begin_shard(self, shard: str) -> None:
        """This process does this shard from here on."""
        self.own_place = self.places[shard]
        self.note_progress(0, None, "")

    def note_progress(self, done: int, total: int | None, unit: str, state: int = RUNS) -> None:
        """Note how far the shard is."""
        self.CELL.pack_into(self.memory, self.own_place * self.CELL.size, state, done, total or 0, unit.encode()[:40])

    def end_shard(self, worked: bool) -> None:
        """The shard is made, or was there."""
        _, done, total, unit = self.read_cell(self.own_place)
        self.note_progress(done, total, unit, self.MADE if worked else self.REUSED)

    def read_cell(self, place: int) -> tuple[int, int, int, str]:
        """State, items done, items in all (0: not known) and unit of a shard."""
        state, done, total, unit = self.CELL.unpack_from(self.memory, place * self.CELL.size)
        return state, done, total, unit.rstrip(b"\0").decode(errors="ignore")

    def status_line(self, now: float | None = None) -> str:
        """`3/16 shards, 12,000 documents, 3,100/s, 40s left`; shards that were there do not count for the time."""
        cells = [self.read_cell(place) for place in self.places.values()]
        finished = [cell for cell in cells if cell[0] in (self.MADE, self.REUSED)]
        work = len(cells) - sum(cell[0] == self.REUSED for cell in cells)
        work_done = sum(cell[0] == self.MADE for cell in cells) + sum(
            done / total for state, done, total, _ in cells if state == self.RUNS and total
        )
        spent, done = max((now or time.monotonic()) - self.start, 1e-9), sum(cell[1] for cell in cells)
        rate = done / spent
        unit = next((cell[3] for cell in cells if cell[3]), "")
        items = f", {done:,} {unit}, {rate:,.{1 if rate < 10 else 0}f}/s" if unit else ""
        left = f", {format_duration(spent * (work - work_done) / work_done)} left" if work_done else ""
        return f"{len(finished):,}/{len(cells):,} shards{items}{left}"

    def log_when_due(self, interval: float = 5.0) -> None:
        """Log the line where one is due."""
        if (now := time.monotonic()) - self.last_logged >= interval:
            self.last_logged = now
            log.info("%s", self.status_line(now))


board: Board | None = None  # of a task of several shards; Progress writes there


class Progress:
    """Counts items and logs `12,000/40,000 documents, 3,100/s, 9s left` at most every `interval` seconds."""

    def __init__(self, total: int | None, unit: str, interval: float = 5.0, done: int = 0) -> None:
        self.total, self.unit, self.interval = total, unit, interval
        self.first = self.done = done
        self.start = self.last_logged = time.monotonic()

    def add(self, count: int = 1, note: str = "") -> None:
        """Count `count` more items; `note` is added at the end of the line when one is due."""
        self.done += count
        if board:
            board.note_progress(self.done, self.total, self.unit)
            return
        now = time.monotonic()
        if now - self.last_logged >= self.interval:
            self.last_logged = now
            log.info("%s%s", self.status_line(now), f", {note}" if note else "")

    def status_line(self, now: float | None = None) -> str:
        """The line itself."""
        rate = (self.done - self.first) / max((now or time.monotonic()) - self.start, 1e-9)
        share = f"{self.done:,}/{self.total:,}" if self.total else f"{self.done:,}"
        left = f", {format_duration((self.total - self.done) / rate)} left" if self.total and rate > 0 else ""
        return f"{share} {self.unit}, {rate:,.{1 if rate < 10 else 0}f}/s{left}"
