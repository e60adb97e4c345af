"""The languages of a text's lines, and which of them are cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from crawl2llm.formats.spans import Span
from crawl2llm.text.c4_lines import LINE

Identify = Callable[[str], tuple[str, float]]  # text → (label, probability)


@dataclass(frozen=True)
class Passage:
    """`text[start:end]`, a line with its line break, and its language."""

    start: int
    end: int
    language: str


def classify_lines(
    text: str, identify: Identify, default_language: str, characters: int, threshold: float
) -> list[Passage]:
    """The lines of a text with their languages. A line of fewer characters, or that is found with a lower probability, has the language of
    the last line before it that is long and sure enough, or else of the first after it; `default_language` if there is none.
    """
    lines, at = list[tuple[int, int, str | None]](), 0
    for line in LINE.findall(text):
        sure = None
        if len(line.strip()) >= characters:
            label, score = identify(line)
            sure = label if score >= threshold else None
        lines.append((at, at + len(line), sure))
        at += len(line)
    last = next((sure for _, _, sure in lines if sure), default_language)
    passages = []
    for start, end, sure in lines:
        last = sure or last
        passages.append(Passage(start, end, last))
    return passages


def foreign_characters(text: str, passages: list[Passage], wanted_languages: Collection[str]) -> int:
    """The characters of lines in other languages, white space around them not counted."""
    return sum(len(text[line.start : line.end].strip()) for line in passages if line.language not in wanted_languages)


def foreign_spans(text: str, passages: list[Passage], wanted_languages: Collection[str]) -> Iterator[Span]:
    """What takes lines in other languages out of a text: a span for each run of lines in one language, whose label is the rule."""
    kept_end = 0  # where the last line that stays ends, before its line break
    # Where a text without a line break at its end loses its end, the break before it goes too.
    stay = [number for number, line in enumerate(passages) if line.language in wanted_languages]
    tail = stay[-1] + 1 if stay and not text.endswith("\n") else None
    number = 0
    while number < len(passages):
        first = passages[number]
        if first.language in wanted_languages:
            kept_end = first.start + len(text[first.start : first.end].rstrip("\n"))
            number += 1
            continue
        start = kept_end if number == tail else first.start
        while number < len(passages) and passages[number].language == first.language:
            number += 1
        yield Span(start, passages[number - 1].end, "", first.language)
