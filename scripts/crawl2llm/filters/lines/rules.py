"""Which lines of a text are taken out by C4's rules (text/c4_lines.py) and by RefinedWeb's (corrections.py), and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from crawl2llm.filters.lines import corrections
from crawl2llm.formats.spans import Span
from crawl2llm.text import c4_lines
from crawl2llm.text.characters import SPACELESS

INSIDE = ("citations", "navigation")  # rules that cut from a line that stays


def reason(line: str, settings: dict[str, Any]) -> str | None:
    """The rule that takes a line out; None for a line that stays, or that is empty."""
    line = (c4_lines.CITATION.sub("", line) if settings["citations"] else line).strip()
    if not line:
        return None
    if settings["terminal_punctuation"] and not c4_lines.terminated(line):
        return "terminal_punctuation"
    if c4_lines.few_words(line, settings["words_min"]):
        return "words_min"
    if c4_lines.has_long_word(line, settings["word_length_max"]):
        return "word_length_max"
    lower = line.lower()
    if settings["javascript"] and "javascript" in lower:
        return "javascript"
    if settings["policy"] and c4_lines.has_policy(lower):
        return "policy"
    return corrections.reason(line, settings)


def edits(text: str, settings: dict[str, Any]) -> Iterator[Span]:
    """What is taken out of a text: whole lines with their line break; marks of citations and navigation in lines that stay."""
    at, kept = 0, 0  # kept: where the last line that stays ends, before its line break
    gone: list[Span] = []  # lines that were taken out since
    is_end = False  # of the text, without a line break
    for line in c4_lines.LINE.findall(text):
        end, body = at + len(line), line.rstrip("\r\n")
        if rule := reason(line, settings):
            gone.append(Span(at, end, "", rule))
            is_end = end == len(text) and body == line
        elif body.strip():
            yield from gone
            gone, kept = [], at + len(body)
            yield from sorted(_inside(line, at, settings), key=lambda span: span.start)
        at = end
    if is_end:
        # As if the text had ended where the last line that stays does: each line goes with the line break before it, not with its own.
        for span in gone:
            end = span.start + len(text[span.start : span.end].rstrip("\r\n"))
            yield Span(kept, end, "", span.rule)
            kept = end
    else:
        yield from gone


def _inside(line: str, at: int, settings: dict[str, Any]) -> Iterator[Span]:
    """What is cut from a line that stays. at: where it begins."""
    for mark in c4_lines.CITATION.finditer(line) if settings["citations"] else ():
        yield Span(at + mark.start(), at + mark.end(), "", "citations")
    if settings["navigation"]:
        # Without marks of citations, the places of other words would be others.
        indent = len(line) - len(line.lstrip())
        for start, end in corrections.navigation(line.strip()):
            if not (settings["citations"] and c4_lines.CITATION.search(line, indent + start, indent + end)):
                yield Span(at + indent + start, at + indent + end, "", "navigation")


def flagged(text: str, found: Sequence[Span]) -> float:
    """The share of a text's words that are on lines that were taken out, or that navigation was cut from. found: from `edits`."""
    places = sorted((span.start, span.end) for span in found if span.rule != "citations")  # none overlaps another
    if not places:
        return 0.0
    at = total = gone = next_place = 0
    for line in c4_lines.LINE.findall(text):
        end = at + len(line)
        number = c4_lines.count_words(line) if SPACELESS.search(line) else len(line.split())
        total += number
        # A span of a last line begins at the line break before it.
        first, last = at + len(line) - len(line.lstrip()), at + len(line.rstrip())
        while next_place < len(places) and places[next_place][1] <= first:
            next_place += 1
        gone += number if next_place < len(places) and places[next_place][0] < last else 0
        at = end
    return gone / total if total else 0.0


def sentences(text: str) -> int:
    """The number of sentences, counted as the heuristics do."""
    return c4_lines.sentences(c4_lines.lines(text))
