"""The measures of a document, in four families. One tokenisation serves them all.

Sources: Gopher (Rae et al. 2021, arXiv 2112.11446, table A1), C4 (Raffel et al. 2020, arXiv 1910.10683), FineWeb
(Penedo et al. 2024, arXiv 2406.17557); definitions after datatrove's filters, deviations in docs/filters/heuristics.md.
A *line* is stripped of white space around it; blank lines do not count. Shares lie in [0, 1]; of nothing, they are 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import filterfalse
from typing import Any

from crawl2llm.filters.heuristics.repetition import DUPLICATE, TOP, ngram_characters
from crawl2llm.text import c4_lines
from crawl2llm.text.c4_lines import EAST_ASIAN_WORD
from crawl2llm.text.characters import BULLETS, EAST_ASIA, SPACELESS, TERMINAL, is_symbol, tokenize
from crawl2llm.text.stop_words import StopWords

Measures = dict[str, Any]

PARAGRAPH = re.compile(r"\n\s*\n")
ELLIPSES = ("...", "…")
# Characters, with their marks, that make a word on average in Thai, Lao, Myanmar, Khmer (Han and kana: EAST_ASIAN_WORD).
SOUTHEAST_ASIAN_WORD = 3
HAN_WIDTH = 3  # letters and spaces of alphabetic text that one character of Han or kana stands for: two make a word

# Every measure in the order of its family, and what kind of number it is: a count, a share in [0, 1], or a ratio from 0.
MEASURES = {
    "gopher_quality_words": "count",
    "gopher_quality_mean_word_length": "ratio",
    "gopher_quality_hashes": "ratio",
    "gopher_quality_ellipses": "ratio",
    "gopher_quality_bullet_lines": "share",
    "gopher_quality_ellipsis_lines": "share",
    "gopher_quality_alphabetic_words": "share",
    "gopher_quality_stop_words": "count",
    "gopher_repetition_duplicate_lines": "share",
    "gopher_repetition_duplicate_paragraphs": "share",
    "gopher_repetition_duplicate_line_characters": "share",
    "gopher_repetition_duplicate_paragraph_characters": "share",
    **{f"gopher_repetition_top_{n}_gram": "share" for n in TOP},
    **{f"gopher_repetition_duplicate_{n}_gram": "share" for n in DUPLICATE},
    "c4_lorem_ipsum": "count",
    "c4_curly_brackets": "count",
    "c4_javascript_lines": "share",
    "c4_policy_lines": "share",
    "c4_few_words_lines": "share",
    "c4_long_word_lines": "share",
    "c4_unterminated_lines": "share",
    "c4_removed_lines": "share",
    "c4_sentences": "count",
    "fineweb_punctuated_lines": "share",
    "fineweb_short_lines": "share",
    "fineweb_duplicate_line_characters": "share",
    "fineweb_newlines_per_word": "ratio",
}


@dataclass(frozen=True)
class Limits:
    """What decides the measures besides the text (the config's heuristics.score)."""

    short_line: int = 30  # characters
    line_words: int = 3
    word_length: int = 1000  # characters
    terminal_punctuation: bool = False
    punctuation_as_words: bool = False


def measure_document(text: str, stop_words: StopWords | None, limits: Limits) -> Measures:
    """Every measure of `text` by its name in MEASURES.

    None if a measure does not apply: stop words of a language without a list, and the mean word length of text that is
    mostly written without spaces.
    """
    tokens = tokenize(text)
    counts = Counter(tokens)
    lines = c4_lines.nonempty_lines(text)
    spaceless = SPACELESS.search(text) is not None
    out: Measures = {}
    scale = _measure_words(out, text, counts, stop_words, limits, spaceless)
    short = limits.short_line // (HAN_WIDTH if scale == EAST_ASIAN_WORD else 1)
    _measure_lines(out, text, lines, short)
    out["fineweb_newlines_per_word"] = _share_of(text.count("\n"), len(tokens) / scale)
    for n, characters in ngram_characters(tokens, counts, scale).items():
        name = "top" if n in TOP else "duplicate"
        out[f"gopher_repetition_{name}_{n}_gram"] = min(_share_of(characters, len(text)), 1.0)
    _measure_c4(out, text, lines, limits)
    return out


def _share_of(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _measure_words(
    out: Measures, text: str, counts: Counter[str], stop_words: StopWords | None, limits: Limits, spaceless: bool
) -> int:
    """Gopher's rules on words. Returns how many tokens make a word: 1, or more where most are of spaceless scripts."""
    total = words = alphabetic = counts.total()
    characters = sum(map(len, counts.elements()))
    # Most tokens are letters alone: only the others are looked at one by one.
    for token in filterfalse(str.isalpha, counts):
        number = counts[token]
        if is_symbol(token):
            words -= number
            alphabetic -= number
            characters -= number * len(token)
        elif not any(map(str.isalpha, token)):
            alphabetic -= number
    single = southeast = 0
    for token in filter(SPACELESS.match, counts) if spaceless else ():
        single += counts[token]
        southeast += counts[token] if token < EAST_ASIA else 0
        characters -= counts[token] * len(token)
    word_size = SOUTHEAST_ASIAN_WORD if southeast * 2 > single else EAST_ASIAN_WORD
    mostly = single * 2 > words
    whole = total if limits.punctuation_as_words else words
    out["gopher_quality_words"] = words - single + single // word_size
    out["gopher_quality_mean_word_length"] = None if mostly else _share_of(characters, words - single)
    out["gopher_quality_hashes"] = _share_of(text.count("#"), whole)
    out["gopher_quality_ellipses"] = _share_of(text.count("...") + text.count("…"), whole)
    out["gopher_quality_alphabetic_words"] = _share_of(alphabetic, whole)
    out["gopher_quality_stop_words"] = stop_words.count(text, counts) if stop_words else None
    return word_size if mostly else 1


def _measure_lines(out: Measures, text: str, lines: list[str], short: int) -> None:
    """The rules on lines and paragraphs of Gopher and FineWeb."""
    total = len(lines)
    out["gopher_quality_bullet_lines"] = _share_of(sum(line.startswith(BULLETS) for line in lines), total)
    out["gopher_quality_ellipsis_lines"] = _share_of(sum(line.endswith(ELLIPSES) for line in lines), total)
    repeated, characters = _count_duplicates(lines)
    out["gopher_repetition_duplicate_lines"] = _share_of(repeated, total)
    out["gopher_repetition_duplicate_line_characters"] = _share_of(characters, len(text))
    out["fineweb_duplicate_line_characters"] = _share_of(characters, sum(map(len, lines)))
    out["fineweb_punctuated_lines"] = _share_of(sum(line[-1] in TERMINAL for line in lines), total)
    out["fineweb_short_lines"] = _share_of(sum(len(line) <= short for line in lines), total)
    paragraphs = PARAGRAPH.split(text.strip())
    repeated, characters = _count_duplicates(paragraphs)
    out["gopher_repetition_duplicate_paragraphs"] = _share_of(repeated, len(paragraphs))
    out["gopher_repetition_duplicate_paragraph_characters"] = _share_of(characters, len(text))


def _count_duplicates(pieces: Sequence[str]) -> tuple[int, int]:
    """How many pieces occurred before, and their characters."""
    unique = set(pieces)
    if len(unique) == len(pieces):
        return 0, 0
    return len(pieces) - len(unique), sum(map(len, pieces)) - sum(map(len, unique))


def _measure_c4(out: Measures, text: str, lines: list[str], limits: Limits) -> None:
    """C4's rules: of its line rules, the share of characters on lines that each would remove; sentences on the rest."""
    lower = text.lower()
    script, policy = "javascript" in lower, c4_lines.has_policy(lower)
    sums = dict.fromkeys(("javascript", "policy", "few_words", "long_word", "unterminated", "removed"), 0)
    rest: list[str] = []
    for line in lines:
        small = line.lower() if script or policy else ""
        failed = []
        if script and "javascript" in small:
            failed.append("javascript")
        if policy and c4_lines.has_policy(small):
            failed.append("policy")
        if c4_lines.has_few_words(line, limits.line_words):
            failed.append("few_words")
        if c4_lines.has_long_word(line, limits.word_length):
            failed.append("long_word")
        unterminated = not c4_lines.is_terminated(line)
        if unterminated:
            sums["unterminated"] += len(line)
        for rule in failed:
            sums[rule] += len(line)
        if failed or (unterminated and limits.terminal_punctuation):
            sums["removed"] += len(line)
        else:
            rest.append(line)
    total = sum(map(len, lines))
    for rule, characters in sums.items():
        out[f"c4_{rule}_lines"] = _share_of(characters, total)
    out["c4_lorem_ipsum"] = lower.count("lorem ipsum")
    out["c4_curly_brackets"] = text.count("{")
    out["c4_sentences"] = c4_lines.count_sentences(rest)
