"""Regular expressions that find question and answer pairs in plain text, and the guards that keep them from hanging.

A pattern has the named groups `subject` and `answer`; where its question asks for the {title}, `subject` may be missing, and documents
without a title are left out. It is matched by the `regex` module (a superset of Python's `re`
that can stop after a time), multiline, on at most so many characters of a document and never on an overlong line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import regex

from crawl2llm.core.errors import InputError
from crawl2llm.training.pair_settings import PairsPattern

KEY = "finetune.pairs.patterns"
HOLE = re.compile(r"\{(subject|title)\}")
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
    # A text's first sentence, 8 to 40 words that begin a line, as the summary of up to 150 words that follow it: news and encyclopedias.
    "lead": {
        "pattern": (
            r"\A(?:(?![^\n]*[.!?।؟。][ \t]*$)[^\n]*+\n)*+"  # headings: lines that do not end as sentences do
            r"[ \t]*+(?P<answer>[\p{Lu}\p{Lo}]\S*(?:[ \t]+\S+){7,39}?(?<=[.!?।؟。]))\s+"
            r"(?P<subject>[\p{Lu}\p{Lo}]\S*(?:\s+\S+){29,149}(?<=[.!?।؟。]))(?=\s|\Z)"
        ),
        "question": "Summarize in one sentence: {subject}",
    },
    # The first full sentence of 5 words or more that begins a line below the first: an ordinary page.
    "title": {
        "pattern": (r"\A[^\n]*\n(?s:.*?)^[ \t]*(?P<answer>[\p{Lu}\p{Lo}]\S*(?:[ \t]+\S+){4,}?(?<=[.!?।؟።]))(?=\s|\Z)"),
        "question": 'What is the page "{title}" about?',
    },
}


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern; `key` is its path in the config, `name` its preset's or its question."""

    key: str
    name: str
    expression: regex.Pattern[str]
    question: str

    @property
    def placeholders(self) -> set[str]:
        """What its question holds, of `subject` and `title`."""
        return set(HOLE.findall(self.question))


def compile_patterns(entries: Sequence[PairsPattern]) -> list[Pattern]:
    """Compile the entries of `finetune.pairs.patterns`: each a `preset`, or a `pattern` with its `question`.

    Raises InputError with the key, and for a broken expression with its position.
    """
    out = []
    for number, entry in enumerate(entries):
        key = f"{KEY}[{number}]"
        name, text, question = entry.preset or entry.question or "", entry.pattern, entry.question
        if entry.preset:
            if further := sorted(entry.model_fields_set - {"preset"}):
                raise InputError(f"{key} has a preset and {further}; give the one or the other")
            text, question = PRESETS[entry.preset]["pattern"], PRESETS[entry.preset]["question"]
        if text is None or question is None:
            missing_key = "pattern" if text is None else "question"
            raise InputError(f"{key} lacks {missing_key!r}; give `preset`, or `pattern` and `question`")
        try:
            expression = regex.compile(text, regex.MULTILINE)
        except regex.error as error:
            raise InputError(
                f"{key}.pattern is not a regular expression: {error.msg} at position {error.pos}: {text!r}"
            ) from error
        pattern = Pattern(key, name, expression, question)
        if not pattern.placeholders:
            raise InputError(f"{key}.question is {question!r}; it must hold {{subject}} or {{title}}")
        if missing := sorted((pattern.placeholders - {"title"} | {"answer"}) - expression.groupindex.keys()):
            raise InputError(f"{key}.pattern lacks the named group (?P<{missing[0]}>…): {text!r}")
        out.append(pattern)
    return out


def bounded_text(text: str, characters: int, line: int) -> str:
    """The first `characters` of a text, cut at a line's end, with every line longer than `line` made empty."""
    if len(text) > characters:
        text = text[:characters].rpartition("\n")[0]
    return "\n".join("" if len(row) > line else row for row in text.split("\n"))


def document_title(row: dict[str, Any]) -> str:
    """The title of a document (its `metadata` and `url`), of 2 to 30 words; "" where it has none but its file's name."""
    words = " ".join(str(json.loads(row["metadata"] or "{}").get("title") or "").split())
    address = str(row["url"] or "")
    file = address.startswith("file:") and words == PurePosixPath(address.rpartition("#")[0]).stem
    return words if 2 <= len(words.split()) <= 30 and not file else ""


def matched_pairs(
    patterns: list[Pattern], text: str, heading: str = "", seconds: float = SECONDS
) -> Iterator[tuple[str, str, str]]:
    """(the pattern's name, question, answer) for every match, pattern by pattern, white space collapsed; empty groups are skipped.

    heading: the document's title, or "".
    Raises InputError if a pattern takes longer than `seconds` on this text.
    """
    for pattern in patterns:
        if "title" in pattern.placeholders and not heading:
            continue
        try:
            for match in pattern.expression.finditer(text, timeout=seconds):
                groups = {name: " ".join((match[name] or "").split()) for name in pattern.expression.groupindex}
                groups["title"] = heading
                if groups["answer"] and all(groups[name] for name in pattern.placeholders):
                    question = HOLE.sub(lambda hole: groups[hole[1]], pattern.question)  # noqa: B023
                    yield pattern.name, question, groups["answer"]
        except TimeoutError as error:
            raise InputError(
                f"{pattern.key}.pattern took more than {seconds:g} s on one document of {len(text):,} characters; "
                "make it simpler, or lower finetune.pairs.max_characters or finetune.pairs.max_line"
            ) from error
