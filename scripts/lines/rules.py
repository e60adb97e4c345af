"""Which lines of a text are taken out by C4's rules (scripts/heuristics/c4.py), and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scripts.formats.spans import Span
from scripts.heuristics import c4


def reason(line: str, settings: dict[str, Any]) -> str | None:
    """The rule that takes a line out; None for a line that stays, or that is empty."""
    line = (c4.CITATION.sub("", line) if settings["citations"] else line).strip()
    if not line:
        return None
    if settings["terminal_punctuation"] and not c4.terminated(line):
        return "terminal_punctuation"
    if c4.few_words(line, settings["words_min"]):
        return "words_min"
    if c4.has_long_word(line, settings["word_length_max"]):
        return "word_length_max"
    lower = line.lower()
    if settings["javascript"] and "javascript" in lower:
        return "javascript"
    if settings["policy"] and c4.has_policy(lower):
        return "policy"
    return None


def edits(text: str, settings: dict[str, Any]) -> Iterator[Span]:
    """What is taken out of a text: whole lines with their line break, and marks of citations in lines that stay."""
    at, kept = 0, 0  # kept: where the last line that stays ends, before its line break
    for line in c4.LINE.findall(text):
        end, body = at + len(line), line.rstrip("\r\n")
        if rule := reason(line, settings):
            # Where the text's end is taken out, the line break before it goes too, as if the text had ended there.
            yield Span(kept if end == len(text) and body == line else at, end, "", rule)
        elif body.strip():
            kept = at + len(body)
            for mark in c4.CITATION.finditer(line) if settings["citations"] else ():
                yield Span(at + mark.start(), at + mark.end(), "", "citations")
        at = end


def sentences(text: str) -> int:
    """The number of sentences, counted as the heuristics do."""
    return c4.sentences(c4.lines(text))
