"""Regular expressions that find question and answer pairs in plain text, and the guards that keep them from hanging.

A pattern has the named groups `subject` and `answer`. It is matched by the `regex` module (a superset of Python's `re`
that can stop after a time), multiline, on at most so many characters of a document and never on an overlong line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import regex

from scripts.workflow.errors import InputError

KEY = "finetune.pairs.patterns"
SECONDS = 10.0  # that one pattern may take on one document before it is refused as pathological

PRESETS = {
    # A line `name(arguments)`, perhaps `class …` before it and `-> type` or `from module` behind it, then a line that
    # is a sentence: how Python's documentation shows a function or a class and its summary. Names with `_` are skipped.
    "summary": {
        "pattern": (
            r"^[ \t]*(?:class )?(?P<subject>(?:[A-Za-z]\w*\.)*[A-Za-z]\w*)\([^\n]*\)(?:[ \t]*->[ \t]*[^\n]+)?"
            r"(?: from [\w.]+)?[ \t]*\n(?:[ \t]*\n)?[ \t]*(?P<answer>[A-Z][^\n]*\.)[ \t]*$"
        ),
        "question": "What does {subject} do?",
    },
    # A first line of 3 to 15 words, and the first full sentence of 5 words or more below it: an ordinary page.
    "title": {
        "pattern": (
            r"\A\s*(?P<subject>\S+(?:[ \t]+\S+){2,14})[ \t]*\n(?s:.*?)"
            r"^[ \t]*(?P<answer>[A-Z]\S*(?:[ \t]+\S+){4,}?(?<=[.!?]))(?=\s|\Z)"
        ),
        "question": 'What is the page "{subject}" about?',
    },
}


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern; `key` is its path in the config."""

    key: str
    expression: regex.Pattern[str]
    question: str


def compiled(entries: list[dict[str, Any]]) -> list[Pattern]:
    """Compile the entries of `finetune.pairs.patterns`: each a `preset`, or a `pattern` with its `question`.

    Raises InputError with the key, and for a broken expression with its position.
    """
    out = []
    for number, entry in enumerate(entries):
        key = f"{KEY}[{number}]"
        if "preset" in entry:
            if len(entry) > 1:
                raise InputError(
                    f"{key} has a preset and {sorted(entry.keys() - {'preset'})}; give the one or the other"
                )
            entry = PRESETS[entry["preset"]]
        if missing := sorted({"pattern", "question"} - entry.keys()):
            raise InputError(f"{key} lacks {missing[0]!r}; give `preset`, or `pattern` and `question`")
        try:
            expression = regex.compile(entry["pattern"], regex.MULTILINE)
        except regex.error as error:
            raise InputError(
                f"{key}.pattern is not a regular expression: {error.msg} at position {error.pos}: {entry['pattern']!r}"
            ) from error
        if missing := sorted({"subject", "answer"} - expression.groupindex.keys()):
            raise InputError(f"{key}.pattern lacks the named group (?P<{missing[0]}>…): {entry['pattern']!r}")
        if "{subject}" not in entry["question"]:
            raise InputError(f"{key}.question is {entry['question']!r}; it must hold {{subject}}")
        out.append(Pattern(key, expression, entry["question"]))
    return out


def window(text: str, characters: int, line: int) -> str:
    """The first `characters` of a text, cut at a line's end, with every line longer than `line` made empty."""
    if len(text) > characters:
        text = text[:characters].rpartition("\n")[0]
    return "\n".join("" if len(row) > line else row for row in text.split("\n"))


def found(patterns: list[Pattern], text: str, seconds: float = SECONDS) -> Iterator[tuple[str, str]]:
    """(question, answer) for every match, pattern by pattern, white space collapsed; empty groups are skipped.

    Raises InputError where a pattern takes longer than `seconds` on this text.
    """
    for pattern in patterns:
        try:
            for match in pattern.expression.finditer(text, timeout=seconds):
                subject, answer = (" ".join((match[group] or "").split()) for group in ("subject", "answer"))
                if subject and answer:
                    yield pattern.question.replace("{subject}", subject), answer
        except TimeoutError as error:
            raise InputError(
                f"{pattern.key}.pattern took more than {seconds:g} s on one document of {len(text):,} characters; "
                "make it simpler, or lower finetune.pairs.max_characters or finetune.pairs.max_line"
            ) from error
