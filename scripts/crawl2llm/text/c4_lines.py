"""C4's rules on lines (Raffel et al. 2020, arXiv 1910.10683, section 2.2): `heuristics` measures them, `lines` takes lines out by them.

The words are those of C4's code (tensorflow_datasets, text/c4_utils.py); datatrove's C4QualityFilter has the same. A line is stripped of
white space around it, and not empty. Deviations are in docs/filters/heuristics.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from crawl2llm.text.characters import SENTENCE_END, SPACELESS, TERMINAL, is_symbol, tokenize

LINE = re.compile(r"[^\n]*\n|[^\n]+")  # with its end
CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
ENDS = TERMINAL | {'"', "'", "”", "’"}
EAST_ASIAN_WORD = 2  # characters of Han or kana that make a word on average


def nonempty_lines(text: str) -> list[str]:
    """The lines of a text that are not empty, without the white space around them."""
    return [line for raw in text.split("\n") if (line := raw.strip())]


def has_policy(lower: str) -> bool:
    """Whether a text in lower case has a phrase on terms of use, privacy or cookies."""
    return any(phrase in lower for phrase in POLICY)


def has_few_words(line: str, least: int) -> bool:
    """Whether a line has fewer words. Where words are not separated by spaces, they are counted by characters."""
    if len(line.split(None, least)) >= least:
        return False
    return SPACELESS.search(line) is None or count_words(line) < least


def count_words(line: str) -> int:
    """The words of a line that has characters of spaceless scripts."""
    words = [token for token in tokenize(line) if not is_symbol(token)]
    single = sum(SPACELESS.match(word) is not None for word in words)
    return len(words) - single + single // EAST_ASIAN_WORD


def has_long_word(line: str, most: int) -> bool:
    """Whether a line has a longer run of characters without spaces, those of spaceless scripts not counted."""
    if len(line) <= most:
        return False
    long = [word for word in line.split() if len(word) > most]
    return any(len(run) > most for word in long for run in SPACELESS.split(word))


def is_terminated(line: str) -> bool:
    """Whether a line ends in a terminal mark or a quote, citations left out, and not in three dots."""
    if line[-1] == "]":
        line = CITATION.sub("", line).rstrip()
    return bool(line) and line[-1] in ENDS and not line.endswith("...")


def count_sentences(lines: Sequence[str]) -> int:
    """The number of sentences on these lines; each line begins one."""
    return len(lines) + len(SENTENCE_END.findall("\n".join(lines)))
