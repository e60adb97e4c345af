"""What a check says: lines with a verdict, as a table, and what they mean for the exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

OK, SLOW, WRONG, SKIPPED = "ok", "slow", "wrong", "skipped"
FAILURES = (SLOW, WRONG)


@dataclass(frozen=True)
class Line:
    """One line of the table. measured, expected: in words, with units; values: the numbers for the JSON; note: why, or which GPU."""

    check: str
    what: str
    measured: str = ""
    expected: str = ""
    verdict: str = OK
    note: str = ""
    values: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The line without what is empty."""
        return {key: value for key, value in asdict(self).items() if value not in ("", None)}


def at_least(value: float, least: float | None) -> str:
    """The verdict of a rate: slow below `least`; without one there is nothing to compare with."""
    return SLOW if least is not None and value < least else OK


def at_most(value: float, most: float) -> str:
    """The verdict of an error: wrong above `most`, and where it is not a number."""
    return OK if value <= most else WRONG


def slow_places(values: Sequence[float], share: float = 0.95) -> list[int]:
    """The places of those that are below `share` of the median: the stragglers among GPUs of one kind."""
    median = sorted(values)[len(values) // 2]
    return [place for place, value in enumerate(values) if value < share * median]


def row_text(line: Line) -> str:
    """The line as a row of a Markdown table."""
    verdict = f"**{line.verdict}**" if line.verdict in FAILURES else line.verdict
    note = f": {line.note}" if line.note else ""
    return f"| {line.check} | {line.what} | {line.measured or '–'} | {line.expected or '–'} | {verdict}{note} |"


HEADER = "| check | what | measured | expected | verdict |\n|---|---|---|---|---|"


def exit_status(lines: Sequence[Line]) -> int:
    """1 where a line is slow or wrong, else 0."""
    return int(any(line.verdict in FAILURES for line in lines))


def summary_text(lines: Sequence[Line]) -> str:
    """`31 ok, 1 slow, 0 wrong, 4 skipped`."""
    return ", ".join(f"{sum(line.verdict == each for line in lines)} {each}" for each in (OK, SLOW, WRONG, SKIPPED))
