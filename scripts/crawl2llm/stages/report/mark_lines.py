"""Files of marks: JSON Lines that the pages of report.inspect save. What is no mark is named by file and line, and counted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError

ALLOWED_VALUES = {"verdict": ("kept", "dropped", "edited"), "mark": ("right", "wrong"), "sample": ("random", "near")}
REQUIRED_TEXTS = ("id", "filter", "run")
LONGEST = 100_000  # characters of a line: a URL may be long
SURROGATE = re.compile("[\ud800-\udfff]")  # no file in UTF-8 can hold it
Key = tuple[str, str, str, str]  # filter, verdict, rule, id


@dataclass(frozen=True)
class Mark:
    """A line of a file. rule: of a kept document the one whose threshold it is nearest, or "". run: the verdicts that it was made on."""

    id: str
    filter: str
    rule: str
    verdict: str
    mark: str
    sample: str
    run: str
    url: str
    time: str

    @property
    def key(self) -> Key:
        """What the mark is on. A kept document is one whatever rule it is near."""
        return self.filter, self.verdict, "" if self.verdict == "kept" else self.rule, self.id


@dataclass
class Marks:
    """The newest mark on each document. bad: `file:line: why` of lines that are none. differing: documents that were marked both ways."""

    by_key: dict[Key, Mark] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)
    lines: int = 0
    differing: set[Key] = field(default_factory=set)

    def add(self, mark: Mark) -> None:
        """Keep a mark, unless there is a newer one on the same document; drawn at random is drawn at random, whichever page said so."""
        earlier = self.by_key.get(mark.key)
        if earlier is None:
            self.by_key[mark.key] = mark
            return
        if earlier.mark != mark.mark:
            self.differing.add(mark.key)
        newest = max(earlier, mark, key=lambda candidate: (candidate.time, candidate.mark, candidate.run))
        sample = "random" if "random" in (earlier.sample, mark.sample) else "near"
        self.by_key[mark.key] = Mark(**{**vars(newest), "sample": sample})


def parse_mark(text: str) -> Mark:
    """A line as a mark. Raises ValueError, in words, for one that is none."""
    if len(text) > LONGEST:
        raise ValueError(f"longer than {LONGEST:,} characters")
    try:
        row = json.loads(text)
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("no JSON that can be read: too deep") from error
    if not isinstance(row, dict):
        raise ValueError("no JSON object")
    for name in (*REQUIRED_TEXTS, "rule", "url", "time"):
        if isinstance(row.get(name), str) and SURROGATE.search(row[name]):
            raise ValueError(f"{name} is {row[name]!a}; half of a surrogate pair is no character")
    for name in REQUIRED_TEXTS:
        if not isinstance(row.get(name), str) or not row[name]:
            raise ValueError(f"{name} is {row.get(name)!r}; it has to be a text")
    for name, allowed in ALLOWED_VALUES.items():
        if row.get(name) not in allowed:
            raise ValueError(f"{name} is {row.get(name)!r}; allowed are {', '.join(allowed)}")
    texts = {name: _optional_text(row, name) for name in ("rule", "url", "time")}
    if row["verdict"] != "kept" and not texts["rule"]:
        raise ValueError(f"rule is {row.get('rule')!r}, and the verdict {row['verdict']!r}")
    return Mark(**{name: row[name] for name in (*REQUIRED_TEXTS, *ALLOWED_VALUES)}, **texts)


def _optional_text(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}; it has to be a text or null")
    return value or ""


def read_marks(paths: Iterable[Path]) -> Marks:
    """The marks of files. Raises InputError for a file that cannot be read; OSError names one that is not there."""
    marks = Marks()
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as handle:
            for number, line in enumerate(handle, 1):
                if not line.strip():
                    continue
                marks.lines += 1
                try:
                    marks.add(parse_mark(line))
                except ValueError as error:
                    marks.bad.append(f"{path}:{number}: {error}")
    if marks.lines and not marks.by_key:
        raise InputError(f"no line is a mark; the first: {marks.bad[0]}")
    return marks
