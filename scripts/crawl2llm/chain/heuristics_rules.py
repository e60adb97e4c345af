"""The heuristics' rules, each a measure and a threshold, in the order in which the first failing one gives the reason.

Rule `<family>.<measure>_min` (`_max`) drops a document whose measure `<family>_<measure>` is below (above) the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FAMILIES: dict[str, tuple[str, ...]] = {
    "gopher_quality": (
        "words_min",
        "words_max",
        "mean_word_length_min",
        "mean_word_length_max",
        "hashes_max",
        "ellipses_max",
        "bullet_lines_max",
        "ellipsis_lines_max",
        "alphabetic_words_min",
        "stop_words_min",
    ),
    "gopher_repetition": (
        "duplicate_lines_max",
        "duplicate_paragraphs_max",
        "duplicate_line_characters_max",
        "duplicate_paragraph_characters_max",
        *(f"top_{n}_gram_max" for n in (2, 3, 4)),
        *(f"duplicate_{n}_gram_max" for n in (5, 6, 7, 8, 9, 10)),
    ),
    "c4": (
        "lorem_ipsum_max",
        "curly_brackets_max",
        "javascript_lines_max",
        "policy_lines_max",
        "few_words_lines_max",
        "long_word_lines_max",
        "unterminated_lines_max",
        "removed_lines_max",
        "sentences_min",
    ),
    "fineweb": (
        "punctuated_lines_min",
        "short_lines_max",
        "duplicate_line_characters_max",
        "newlines_per_word_max",
    ),
}


@dataclass(frozen=True)
class Rule:
    """A threshold on one measure: `low` drops what is below it, else what is above it is dropped."""

    name: str
    measure: str
    low: bool
    threshold: float


Thresholds = dict[str, float | None]  # by rule, as `gopher_quality.words_min`; None switches it off
# Thresholds for all were chosen on English, and drop good text of these languages (measured: docs/filters/heuristics.md). A threshold here
# holds where it is the looser one.
LOOSER: dict[str, Thresholds] = {
    # Korean writes syllables, two or three to a word. FineWeb2's repository, configs/kor_Hang.yml: 1.
    "ko": {"gopher_quality.mean_word_length_min": 1},
    # Thai and Lao end sentences with a space. FineWeb2, configs/tha_Thai.yml: 0.
    "th": {"fineweb.punctuated_lines_min": None},
    "lo": {"fineweb.punctuated_lines_min": None},
    # Chinese joins by commas what English writes as sentences. 3 is the least of C4's own code (tensorflow_datasets, text/c4_utils.py).
    "zh": {"c4.sentences_min": 3},
}


def active_rules(settings: dict[str, Any]) -> list[Rule]:
    """The rules for all languages that `heuristics.select` switches on: of the families named there, those whose threshold is not null."""
    return [
        Rule(f"{family}.{name}", f"{family}_{name.rsplit('_', 1)[0]}", name.endswith("_min"), threshold)
        for family, names in FAMILIES.items()
        if family in settings["families"]
        for name in names
        if (threshold := settings[family][name]) is not None
    ]
