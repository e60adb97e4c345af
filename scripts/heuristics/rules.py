"""The rules that compare a measure with a threshold, in the order in which the first failing one gives the reason.

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

    def fails(self, value: float | None) -> bool:
        """Whether the rule drops a document with this measure; a measure that does not apply (None) passes."""
        return value is not None and (value < self.threshold if self.low else value > self.threshold)


def rules(settings: dict[str, Any]) -> list[Rule]:
    """The rules that `heuristics.select` switches on: of the families named there, those whose threshold is not null."""
    found = []
    for family, names in FAMILIES.items():
        for name in names:
            threshold = settings[family][name]
            if family in settings["families"] and threshold is not None:
                measure = f"{family}_{name.rsplit('_', 1)[0]}"
                found.append(Rule(f"{family}.{name}", measure, name.endswith("_min"), threshold))
    return found
