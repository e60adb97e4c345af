"""For each rule a text that fails it and nothing else: `CASES[rule]` is (text, settings laid over the defaults)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

Overlay = dict[str, Any]


def words(length: int = 5, digits: bool = False) -> Iterator[str]:
    """Different words of one length without end; without letters where `digits` is true."""
    for number in count():
        body = ""
        for _ in range(length):
            number, letter = divmod(number, 10 if digits else 26)
            body += chr((0x30 if digits else 0x61) + letter)
        yield body


def line(source: Iterator[str], size: int = 12, end: str = ".", start: str = "the of ") -> str:
    """A line of `size` fresh words after two stop words."""
    return start + " ".join(next(source) for _ in range(size)) + end


def page(lines: int = 20, source: Iterator[str] | None = None, **options: Any) -> str:
    """A page that fails no rule; of the words of `source`, so that two pages in one text do not repeat each other."""
    source = source or words()
    return "\n".join(line(source, **options) for _ in range(lines))


def repeated(size: int, share: float) -> str:
    """Fresh words, in which phrases of `size` words that occurred before hold `share` of the characters."""
    source = words()
    total = 1200
    phrases = round(share * (total * 6 + 400) / (5 * size))
    flat: list[str] = []
    for _ in range(phrases):
        phrase = [next(source) for _ in range(size)]
        flat += [*phrase, next(source), *phrase, next(source)]
    flat += [next(source) for _ in range(total - len(flat))]
    # Stop words and line ends come behind the phrases: they would cut them.
    return " ".join(flat) + ".\n" + page(5, source)


def frequent(size: int, fresh: int) -> str:
    """The same `size` words again and again, `fresh` new ones between them."""
    source = words()
    phrase = " ".join(next(source) for _ in range(size))
    body = " ".join(f"{phrase} {' '.join(next(source) for _ in range(fresh))}" for _ in range(60))
    return body + ".\n" + page(5, source, size=4)


def off(*rules: str) -> Overlay:
    """Rules switched off: those that the rule under test implies."""
    overlay: Overlay = {}
    for rule in rules:
        family, name = rule.split(".")
        overlay.setdefault(family, {})[name] = None
    return overlay


def _c4_lines(bad: str, number: int = 8) -> str:
    source = words(7)
    return page() + "\n" + "\n".join(bad.format(next(source), next(source)) for _ in range(number))


def _two_pages(first: dict[str, Any], second: dict[str, Any]) -> str:
    source = words()
    return page(source=source, **first) + "\n" + page(source=source, **second)


def _again(pieces: list[str], fresh: list[str], between: str) -> str:
    """`pieces` twice, a fresh piece behind each, so that no two neighbours come again; then the other fresh ones."""
    rest = iter(fresh)
    return between.join([part for piece in pieces * 2 for part in (piece, next(rest))] + list(rest))


SHARE = 0.2  # a threshold for C4's line rules, which have none of their own
LONG = [word * 4 for word, _ in zip(words(), range(20), strict=False)]
TRIPLETS = [" ".join(LONG[i : i + 3]) for i in range(0, 15, 3)]
ONES = [word for word, _ in zip(words(8), range(400), strict=False)]
STANZAS = ["\n".join(ONES[i : i + 4]) for i in range(0, 400, 4)]

CASES: dict[str, tuple[str, Overlay]] = {
    "gopher_quality.words_min": (page(1, size=7) + "\n" + page(5, words(6), size=7, start=""), {}),
    "gopher_quality.words_max": (page(7200), {}),
    "gopher_quality.mean_word_length_min": (page(source=words(2)), {}),
    "gopher_quality.mean_word_length_max": (page(source=words(13)), {}),
    "gopher_quality.hashes_max": (page(start="the of # # # "), {}),
    "gopher_quality.ellipses_max": (page(start="the … of … "), {}),
    "gopher_quality.bullet_lines_max": (page(start="• the of "), {}),
    "gopher_quality.ellipsis_lines_max": (_two_pages({"lines": 12}, {"lines": 8, "end": "..."}), {}),
    "gopher_quality.alphabetic_words_min": (page() + "\n" + page(8, words(5, digits=True)), {}),
    "gopher_quality.stop_words_min": (page(start=""), {}),
    "gopher_repetition.duplicate_lines_max": (page(12, size=100) + "\nYes we do." * 8, {}),
    "gopher_repetition.duplicate_paragraphs_max": (page(60, size=30) + "\n\nYes we do." * 3, {}),
    "gopher_repetition.duplicate_line_characters_max": (
        _again(TRIPLETS, [*page(10, start="", size=13).split("\n"), line(words(7), 8)], "\n"),
        off("fineweb.duplicate_line_characters_max"),
    ),
    "gopher_repetition.duplicate_paragraph_characters_max": (
        _again(STANZAS[:8], STANZAS[8:28], "\n\n"),
        {"families": ["gopher_repetition"]},
    ),
    "gopher_repetition.top_2_gram_max": (frequent(2, 6), {}),
    "gopher_repetition.top_3_gram_max": (frequent(3, 11), {}),
    "gopher_repetition.top_4_gram_max": (frequent(4, 17), {}),
    **{
        f"gopher_repetition.duplicate_{n}_gram_max": (repeated(n, share), {})
        for n, share in zip(range(5, 11), (0.16, 0.145, 0.135, 0.125, 0.115, 0.105), strict=True)
    },
    "c4.lorem_ipsum_max": (page() + "\nLorem ipsum is here.", {}),
    "c4.curly_brackets_max": (page() + "\nSome code is { here.", {}),
    "c4.javascript_lines_max": (
        _c4_lines("Javascript {} and {} is what the page wants."),
        {"c4": {"javascript_lines_max": SHARE}},
    ),
    "c4.policy_lines_max": (
        _c4_lines("Cookie policy {} and {} is what the page has."),
        {"c4": {"policy_lines_max": SHARE}},
    ),
    "c4.few_words_lines_max": (
        page() + "\n" + "\n".join(f"{a}{a}{a} {a}{a}." for a in LONG[:8]),
        {"c4": {"few_words_lines_max": SHARE}},
    ),
    "c4.long_word_lines_max": (
        page(30) + f"\nThe word {'abcde' * 201} is long.",
        {"c4": {"long_word_lines_max": SHARE}},
    ),
    "c4.unterminated_lines_max": (
        _two_pages({"lines": 14}, {"lines": 6, "end": ""}),
        {"c4": {"unterminated_lines_max": SHARE}},
    ),
    "c4.removed_lines_max": (
        _c4_lines("Javascript {} and {} is what the page wants."),
        {"c4": {"removed_lines_max": SHARE}},
    ),
    "c4.sentences_min": (page(4, size=20), {}),
    "fineweb.punctuated_lines_min": (page(end=""), {}),
    "fineweb.short_lines_max": (page(6, size=30) + "\n" + page(14, words(6), size=4, start=""), {}),
    "fineweb.duplicate_line_characters_max": (page(20) + "\n" + page(1), {}),
    "fineweb.newlines_per_word_max": (page().replace("\n", "\n\n\n\n\n\n"), {}),
}
