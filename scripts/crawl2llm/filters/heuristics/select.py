"""Keep the documents that pass every heuristic that is switched on, those of curated sources, and of sources that skip this filter.

Thresholds may differ by language: those of the config (`languages`) hold before those of heuristics.calibrate. A rule is
named `<family>.<measure>_<min|max>`. The verdict names the first rule that fails and lists all. A document
that stays in any case has the rules that it fails in its verdict too.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.chain.heuristics_rules import LanguageRules, Rule
from crawl2llm.core.manifest import Manifest
from crawl2llm.filters.heuristics import thresholds
from crawl2llm.formats.documents import select_shard
from crawl2llm.formats.labels_by_document import languages_by_id
from crawl2llm.formats.verdicts import FailedRule, verdict_row


def judge_document(row: dict[str, Any], active: Sequence[Rule]) -> dict[str, Any]:
    """The verdict on one signals row under the rules of `active`."""
    failed = [
        FailedRule(rule.name, row[rule.measure], rule.threshold) for rule in active if rule.fails(row[rule.measure])
    ]
    return verdict_row(row["id"], failed, stays=row["curated"])


class Tally:
    """Counts, by rule: how many documents it drops, how many it alone drops, how many it does not apply to."""

    def __init__(self, rules: LanguageRules, language_of: dict[str, str]) -> None:
        self.chosen, self.language_of = rules, language_of
        self.languages: dict[str, Counter[str]] = {}
        self.dropped: Counter[str] = Counter()
        self.unique: Counter[str] = Counter()
        self.not_applicable: Counter[str] = Counter()
        self.curated_exempt = 0

    def __call__(self, row: dict[str, Any], verdict: dict[str, Any]) -> None:
        """Count the verdict on a signals row."""
        language = self.language_of.get(row["id"], "")
        self.not_applicable.update(rule.name for rule in self.chosen.rules_of(language) if row[rule.measure] is None)
        if self.language_of:
            counts = self.languages.setdefault(language, Counter())
            counts.update(["documents"] if verdict["kept"] else ["documents", "dropped"])
        if not verdict["kept"]:
            self.dropped.update(verdict["rules"])
            self.unique.update(verdict["rules"] if len(verdict["rules"]) == 1 else ())
        elif verdict["rules"] and row["curated"]:
            self.curated_exempt += 1

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
                for name in self.chosen.rule_names()
            },
            "thresholds": {rule.name: rule.threshold for rule in self.chosen.default},
            "curated_exempt": self.curated_exempt,
        }
        if self.languages:
            totals["languages"] = {
                language: {"documents": counts["documents"], "dropped": counts["dropped"]}
                for language, counts in sorted(self.languages.items())
            }
        return totals


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    rules = LanguageRules(settings, thresholds.read_thresholds(args.thresholds))
    # A shard's ids in memory; without thresholds by language there is nothing to look up.
    language_of = languages_by_id(args.languages)
    tally = Tally(rules, language_of)

    def judge_row(row: dict[str, Any]) -> dict[str, Any]:
        return judge_document(row, rules.rules_of(language_of.get(row["id"], "")))

    files = select_shard(args.signals, judge_row, manifest, args.manifest, settings["skipped_by"], tally)
    manifest.summary |= tally.manifest_summary()
    return files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "heuristics.select",
        __doc__,
        "--config config.yaml --signals results/main/heuristics/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same heuristics.score shard")
    parser.add_argument(
        "--thresholds", type=Path, nargs="*", default=[], help="manifest of heuristics.calibrate, where it is used"
    )
    parser.add_argument(
        "--languages",
        type=Path,
        nargs="*",
        default=[],
        help="manifest of the same language.score shard, where thresholds differ by language",
    )
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
