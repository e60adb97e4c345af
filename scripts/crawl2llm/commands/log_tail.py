"""What a running task has written into its log since one last looked: its newest line, warnings, loss and time left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from crawl2llm.core.console import escape_controls

LOG_LINE = re.compile(r"^\d\d:\d\d:\d\d (?P<name>[\w.]+(?: [\w.-]+)?): (?P<message>.*)$")  # core/console.py
TIME_LEFT = re.compile(r"\b(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)? left\b")
LOSS = re.compile(r"\bloss (\d+\.\d+)")
RESULT = re.compile(
    r"\b((?:held-out|validation) loss)(?: after:)? (\d+\.\d+)"
)  # not of a step's batch, which is another each time
SPEED = re.compile(r"(?<![\d,.])([\d,.]++) tokens/s")
WARNING = "warning: "  # how a message begins that is shown
RESUMING = "resuming after step"  # core/checkpoint_folders.py
BLOCK = 1 << 20  # bytes read at once


def seconds_left(message: str) -> float | None:
    """The seconds of `…, 1h02m left`; None if a message does not say."""
    match = TIME_LEFT.search(message)
    if not match or not any(match.groups()):
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(hours * 3600 + minutes * 60 + seconds)


class Tail:
    """The end of a log that is being written; a file that is not there yet, or begins again, is no error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.partial_line = b""
        try:  # what an earlier start has written into a log that is continued
            self.old_size = path.stat().st_size
        except OSError:
            self.old_size = 0
        self.message = ""  # the newest line, without its time and name
        self.time_left: tuple[float, float] | None = None  # (seconds left, the file's time when it said so)
        self.loss: float | None = None
        self.speed = ""
        self.result = ""  # `held-out loss 3.798 nats a token`

    def read_warnings(self) -> list[str]:
        """Read what is new; returns its warnings, and that this start resumes a training, headed by the task's name."""
        warnings = []
        for line, written, end in self._new_lines():
            match = LOG_LINE.match(line)
            if not match:
                continue
            self.message = message = match["message"]
            if message.startswith(WARNING) or (message.startswith(RESUMING) and end > self.old_size):
                warnings.append(f"{match['name']}: {message}")
            if end <= self.old_size:
                continue
            if (seconds := seconds_left(message)) is not None:
                self.time_left = (seconds, written)
            if loss := LOSS.search(message):
                self.loss = float(loss.group(1))
            if result := RESULT.search(message):
                self.result = f"{result[1]} {float(result[2]):.3f} nats a token"
            if speed := SPEED.search(message):
                self.speed = f"{speed.group(1)} tokens/s"
        return warnings

    def _new_lines(self) -> Iterator[tuple[str, float, int]]:
        """(line, the file's time, the byte after the line's last) of each whole line that is new."""
        try:
            with self.path.open("rb") as handle:
                status = self.path.stat()
                if status.st_size < self.offset:
                    self.offset, self.partial_line, self.old_size = 0, b"", 0
                handle.seek(self.offset)
                while block := handle.read(BLOCK):
                    end = self.offset - len(self.partial_line)
                    self.offset += len(block)
                    *whole, self.partial_line = (self.partial_line + block).split(b"\n")
                    for line in whole:
                        end += len(line) + 1
                        yield escape_controls(line.decode("utf-8", "replace")), status.st_mtime, end
        except OSError:
            return
