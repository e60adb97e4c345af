"""The heuristics' rules, each a measure and a threshold, in the order in which the first failing one gives the reason.

Rule `<family>.<measure>_min` (`_max`) drops a document whose measure `<family>_<measure>` is below (above) the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crawl2llm.core import language_codes

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


def active_rules(settings: dict[str, Any], overrides: Thresholds | None = None) -> list[Rule]:
    """The rules that `heuristics.select` switches on: of the families named there, those whose threshold is not null.

    overrides: thresholds of a language, in place of those that hold for all.
    """
    rules, thresholds = [], overrides or {}
    for family, names in FAMILIES.items():
        for name in names:
            threshold = thresholds.get(f"{family}.{name}", settings[family][name])
            if family in settings["families"] and threshold is not None:
                measure = f"{family}_{name.rsplit('_', 1)[0]}"
                rules.append(Rule(f"{family}.{name}", measure, name.endswith("_min"), threshold))
    return rules


def is_looser(settings: dict[str, Any], rule: str, value: float | None) -> bool:
    """Whether a threshold drops less than that of the settings for all languages; not where these have the rule off."""
    family, _, name = rule.partition(".")
    for_all = settings[family][name]
    return for_all is not None and (value is None or (value < for_all if name.endswith("_min") else value > for_all))


class LanguageRules:
    """The rules that hold for each language: the config's for it, else those that were calibrated, else LOOSER, else those for all.

    settings: of `heuristics.select`; calibrated: language → thresholds by rule, of heuristics.calibrate.
    """

    def __init__(self, settings: dict[str, Any], calibrated: dict[str, Thresholds] | None = None) -> None:
        self.settings = settings
        # In the order of their weight; a table of `zh` is one of `cmn_Hani` too.
        self.tables: list[dict[str, Thresholds]] = [
            {
                language: {rule: value for rule, value in thresholds.items() if is_looser(settings, rule, value)}
                for language, thresholds in LOOSER.items()
            },
            calibrated or {},
            {
                language: {
                    f"{family}.{name}": value for family, values in families.items() for name, value in values.items()
                }
                for language, families in settings.get("languages", {}).items()
            },
        ]
        self.default = active_rules(settings)
        self.rules_by_language: dict[str, list[Rule]] = {}
        for language in dict.fromkeys(name for table in self.tables for name in table):
            self.rules_of(language)

    def thresholds_of(self, language: str) -> Thresholds:
        """The thresholds of a language by rule, in place of those for all."""
        return {
            rule: value
            for table in self.tables
            for rule, value in (language_codes.lookup_label(table, language) or {}).items()
        }

    def rules_of(self, language: str) -> list[Rule]:
        """The active rules of a language."""
        if language not in self.rules_by_language:
            thresholds = self.thresholds_of(language)
            self.rules_by_language[language] = active_rules(self.settings, thresholds) if thresholds else self.default
        return self.rules_by_language[language]

    def rule_names(self) -> list[str]:
        """Every rule that is active for any language, in order."""
        active = {rule.name for rules in (self.default, *self.rules_by_language.values()) for rule in rules}
        return [
            name
            for family, names in FAMILIES.items()
            for threshold in names
            if (name := f"{family}.{threshold}") in active
        ]
