"""Which lines of a text are taken out by C4's rules (text/c4_lines.py) and by RefinedWeb's (corrections.py), and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crawl2llm.filters.lines import corrections
from crawl2llm.filters.lines.settings import ScoreSettings
from crawl2llm.formats.spans import Span
from crawl2llm.text import c4_lines
from crawl2llm.text.characters import SPACELESS

RULES_INSIDE_LINES = ("citations", "navigation")  # rules that cut from a line that stays


def rule_removing(line: str, settings: ScoreSettings) -> str | None:
    """The rule that takes a line out; None for a line that stays, or that is empty."""
    line = (c4_lines.CITATION.sub("", line) if settings.citations else line).strip()
    if not line:
        return None
    if settings.terminal_punctuation and not c4_lines.is_terminated(line):
        return "terminal_punctuation"
    if c4_lines.has_few_words(line, settings.words_min):
        return "words_min"
    if c4_lines.has_long_word(line, settings.word_length_max):
        return "word_length_max"
    lower = line.lower()
    if settings.javascript and "javascript" in lower:
        return "javascript"
    if settings.policy and c4_lines.has_policy(lower):
        return "policy"
    return corrections.correction_of(line, settings)


def removed_spans(text: str, settings: ScoreSettings) -> Iterator[Span]:
    """What is taken out of a text: whole lines with their line break; marks of citations and navigation in lines that stay."""
    at, kept_end = 0, 0  # kept: where the last line that stays ends, before its line break
    removed_lines: list[Span] = []  # lines that were taken out since
    is_end = False  # of the text, without a line break
    for line in c4_lines.LINE.findall(text):
        end, body = at + len(line), line.rstrip("\r\n")
        if rule := rule_removing(line, settings):
            removed_lines.append(Span(at, end, "", rule))
            is_end = end == len(text) and body == line
        elif body.strip():
            yield from removed_lines
            removed_lines, kept_end = [], at + len(body)
            yield from sorted(_spans_inside(line, at, settings), key=lambda span: span.start)
        at = end
    if is_end:
        # As if the text had ended where the last line that stays does: each line goes with the line break before it, not with its own.
        for span in removed_lines:
            end = span.start + len(text[span.start : span.end].rstrip("\r\n"))
            yield Span(kept_end, end, "", span.rule)
            kept_end = end
    else:
        yield from removed_lines


def _spans_inside(line: str, at: int, settings: ScoreSettings) -> Iterator[Span]:
    """What is cut from a line that stays. at: where it begins."""
    for mark in c4_lines.CITATION.finditer(line) if settings.citations else ():
        yield Span(at + mark.start(), at + mark.end(), "", "citations")
    if settings.navigation:
        # Without marks of citations, the places of other words would be others.
        indent = len(line) - len(line.lstrip())
        for start, end in corrections.navigation_places(line.strip()):
            if not (settings.citations and c4_lines.CITATION.search(line, indent + start, indent + end)):
                yield Span(at + indent + start, at + indent + end, "", "navigation")


def flagged_share(text: str, spans: Sequence[Span]) -> float:
    """The share of a text's words that are on lines that were taken out, or that navigation was cut from. spans: from `removed_spans`."""
    places = sorted((span.start, span.end) for span in spans if span.rule != "citations")  # none overlaps another
    if not places:
        return 0.0
    at = total = flagged_words = next_place = 0
    for line in c4_lines.LINE.findall(text):
        end = at + len(line)
        number = c4_lines.count_words(line) if SPACELESS.search(line) else len(line.split())
        total += number
        # A span of a last line begins at the line break before it.
        first, last = at + len(line) - len(line.lstrip()), at + len(line.rstrip())
        while next_place < len(places) and places[next_place][1] <= first:
            next_place += 1
        flagged_words += number if next_place < len(places) and places[next_place][0] < last else 0
        at = end
    return flagged_words / total if total else 0.0


def count_sentences(text: str) -> int:
    """The number of sentences, counted as the heuristics do."""
    return c4_lines.count_sentences(c4_lines.nonempty_lines(text))
