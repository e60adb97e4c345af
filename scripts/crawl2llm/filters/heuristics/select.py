"""Keep the documents that pass every heuristic that is switched on, those of curated sources, and of sources that skip this filter.

Thresholds may differ by language: those of the config (`languages`) hold before those of heuristics.calibrate. A rule is
named `<family>.<measure>_<min|max>`. The verdict names the first rule that fails and lists all. A document
that stays in any case has the rules that it fails in its verdict too.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core import language_codes
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.phrases import list_sentence
from crawl2llm.filters.framework import select
from crawl2llm.filters.framework.rules import OFF, Rule
from crawl2llm.filters.heuristics import thresholds
from crawl2llm.filters.heuristics.looser_thresholds import LOOSER, Thresholds
from crawl2llm.filters.heuristics.rules import FAMILIES
from crawl2llm.filters.heuristics.settings import SelectSettings
from crawl2llm.formats.labels_by_document import languages_by_id

NONE_CALIBRATED: Mapping[str, Thresholds] = MappingProxyType({})  # of a run without heuristics.calibrate


def thresholds_by_language(settings: SelectSettings) -> dict[str, Thresholds]:
    """The thresholds by rule that the config has of a language, in place of those for all."""
    return {
        language: {
            f"{family}.{name}": number for family, numbers in families.items() for name, number in numbers.items()
        }
        for language, families in settings.languages.items()
    }


def rules(settings: SelectSettings, calibrated: Mapping[str, Thresholds] = NONE_CALIBRATED) -> list[Rule]:
    """The rules of the families that are switched on, in the order in which the first that fails gives the reason.

    calibrated: thresholds by language and rule of heuristics.calibrate, which hold if the config has none of the language.
    """
    configured = thresholds_by_language(settings)

    @cache
    def thresholds_of_language(label: str) -> Thresholds:
        tables = (language_codes.lookup_label(table, label) or {} for table in (calibrated, configured))
        return {rule: number for table in tables for rule, number in table.items()}

    @cache
    def looser_thresholds(label: str) -> Thresholds:
        return language_codes.lookup_label(LOOSER, label) or {}

    def pick(label: str, thresholds_of: Any, rule: str) -> float | None:
        numbers = thresholds_of(label)
        if rule not in numbers:
            return None
        return OFF if numbers[rule] is None else numbers[rule]

    def describe(rule: str) -> list[str]:
        named = sorted(language for language, numbers in configured.items() if rule in numbers)
        about = list_sentence("Languages with a threshold of their own keep it", named)
        if derived := sorted({language for language, numbers in calibrated.items() if rule in numbers} - {*named}):
            about.append(
                f"For {', '.join(derived)} the threshold that heuristics.calibrate derived is kept here; a run may derive another from "
                "this one, as crawl2llm whatif does."
            )
        return about + list_sentence(
            "Looser in any case", [name for name, numbers in LOOSER.items() if rule in numbers]
        )

    return [
        Rule(
            rule := f"{family}.{name}",
            f"{family}_{name.rsplit('_', 1)[0]}",
            "<" if name.endswith("_min") else ">",
            rule,
            by_language=partial(pick, thresholds_of=thresholds_of_language, rule=rule),
            looser=partial(pick, thresholds_of=looser_thresholds, rule=rule),
            about=describe(rule),
        )
        for family, names in FAMILIES.items()
        if family in settings.families
        for name in names
    ]


class Tally:
    """Counts, by rule: how many documents it drops, how many it alone drops, how many it does not apply to."""

    def __init__(
        self, settings: SelectSettings, calibrated: Mapping[str, Thresholds], language_of: Mapping[str, str]
    ) -> None:
        """calibrated: see `rules`. language_of: by id; empty if no threshold differs by language."""
        self.settings, self.language_of = settings, language_of
        self.rules_by_language: dict[str, dict[str, Rule]] = {}
        self.languages: dict[str, Counter[str]] = {}
        self.dropped: Counter[str] = Counter()
        self.unique: Counter[str] = Counter()
        self.not_applicable: Counter[str] = Counter()
        self.curated_exempt = 0
        self.rules = rules(settings, calibrated)
        for label in ("", *LOOSER, *calibrated, *settings.languages):
            self.active_rules(label)

    def active_rules(self, label: str) -> dict[str, Rule]:
        """By name, the rules that have a threshold for a language."""
        if label not in self.rules_by_language:
            self.rules_by_language[label] = {
                rule.name: rule for rule in self.rules if not math.isnan(rule.threshold_for(label, self.settings))
            }
        return self.rules_by_language[label]

    def __call__(self, row: dict[str, Any], verdict: dict[str, Any]) -> None:
        """Count the verdict on a signals row."""
        language = self.language_of.get(row["id"], "")
        self.not_applicable.update(
            name for name, rule in self.active_rules(language).items() if row[str(rule.measure)] is None
        )
        if self.language_of:
            counts = self.languages.setdefault(language, Counter())
            counts.update(["documents"] if verdict["kept"] else ["documents", "dropped"])
        if not verdict["kept"]:
            self.dropped.update(verdict["rules"])
            self.unique.update(verdict["rules"] if len(verdict["rules"]) == 1 else ())
        elif verdict["rules"] and row["curated"]:
            self.curated_exempt += 1

    def names_of_active_rules(self) -> list[str]:
        """The rules that have a threshold for any language, in order."""
        return [
            rule.name for rule in self.rules if any(rule.name in active for active in self.rules_by_language.values())
        ]

    def manifest_summary(self) -> dict[str, Any]:
        """Counts of every active rule and the thresholds, by name, and the curated documents that a rule would have dropped.

        Counts are added up over the shards, so they stand apart from the thresholds. Where these differ by language, documents and
        drops by language too.
        """
        totals = {
            "rules": {
                name: {
                    "dropped": self.dropped[name],
                    "unique": self.unique[name],
                    "not_applicable": self.not_applicable[name],
                }
                for name in self.names_of_active_rules()
            },
            "thresholds": {name: rule.threshold_for_all(self.settings) for name, rule in self.active_rules("").items()},
            "curated_exempt": self.curated_exempt,
        }
        if self.languages:
            totals["languages"] = {
                language: {"documents": counts["documents"], "dropped": counts["dropped"]}
                for language, counts in sorted(self.languages.items())
            }
        return totals


class Task(SelectSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    # A shard's ids in memory; without thresholds by language there is nothing to look up.
    language_of = languages_by_id(args.languages)
    tally = Tally(settings, thresholds.read_thresholds(args.thresholds), language_of)
    files = select.judge_shard(args, settings, manifest, tally.rules, language_of, count=tally)
    manifest.summary |= tally.manifest_summary()
    return files


main = Program("heuristics.select", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
