"""Keep the documents whose best language is wanted and scored high enough, and those of sources that skip this filter.

Rules: `language` (another language: no number is compared, `detail` names the language found), `score` (below `threshold`), and, of what
language.compare measured, `agreement_min` and `script_min`; what it has no number for passes. The
default threshold 0.65 is FineWeb's (datatrove, src/datatrove/pipeline/filters/language_filter.py).
LOOSER_THRESHOLDS has lower ones of languages that are wanted by name.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from crawl2llm.chain.step_program import Program, SkippedBy
from crawl2llm.core import language_codes
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.phrases import list_sentence
from crawl2llm.filters.framework import select
from crawl2llm.filters.framework.rules import Match, Rule, Rules
from crawl2llm.filters.language.settings import SelectSettings
from crawl2llm.formats.documents import parquet_file, read_table, rows

# lid.176 shares the probability of these among near relatives: at 0.65 it drops between 5 and 100 of 100 passages of their Universal
# Declaration of Human Rights, and none of the English one (docs/filters/language.md).
LOOSER_THRESHOLDS = {"af": 0.55, "hr": 0.3, "id": 0.6, "no": 0.6, "sl": 0.55, "sw": 0.35}


# What language.compare measures, and the key and rule that is its least.
COMPARED_RULES = {"agreement": "agreement_min", "script_share": "script_min"}


def thresholds_by_language(settings: SelectSettings) -> dict[str, float]:
    """The thresholds of languages that have one: the config's, and for a language that `languages` names that of LOOSER_THRESHOLDS."""
    threshold = settings.threshold
    looser = {
        name: LOOSER_THRESHOLDS[name]
        for name in settings.languages
        if LOOSER_THRESHOLDS.get(name, threshold) < threshold
    }
    return {**looser, **settings.thresholds}


def rules(settings: SelectSettings) -> Rules:
    """The rules under the settings of `language.select`, in the order in which the first that fails gives the reason."""
    languages, thresholds = settings.languages, settings.thresholds
    loose = {name: limit for name, limit in LOOSER_THRESHOLDS.items() if name in languages}
    limits = {**loose, **thresholds}

    def find_unwanted(label: str | None) -> str | None:
        return label if languages and not language_codes.is_listed(label or "", languages) else None

    def threshold_of(label: str, in_config: bool) -> float | None:
        name = language_codes.lookup_label({name: name for name in limits}, label)
        return limits[name] if name is not None and (name in thresholds) == in_config else None

    about = list_sentence("Languages with a threshold of their own keep it", sorted(thresholds))
    about += list_sentence("Lower in any case", sorted(loose))
    by_language, looser = partial(threshold_of, in_config=True), partial(threshold_of, in_config=False)
    return [
        Match("language", "language", find_unwanted),
        Rule("score", "score", "<", "threshold", by_language=by_language, looser=looser, about=about),
        *(Rule(key, measure, "<", key, step="compare") for measure, key in COMPARED_RULES.items()),
    ]


class Task(SelectSettings, SkippedBy):
    """The arguments of the program."""


def body(args: argparse.Namespace, settings: Task, manifest: Manifest) -> list[Path]:
    thresholds = thresholds_by_language(settings)
    minimums = {key: least for key in COMPARED_RULES.values() if (least := getattr(settings, key)) is not None}
    # A shard's in memory, if anything is compared.
    compared = [read_table(parquet_file(path), ["id", *COMPARED_RULES]) for path in (args.compared if minimums else [])]
    files = select.judge_shard(args, settings, manifest, rules(settings), further_signals=compared)
    histogram: dict[str, int] = {}
    for row in rows(parquet_file(args.signals), ["language"]):
        histogram[row["language"]] = histogram.get(row["language"], 0) + 1
    manifest.summary |= {
        "languages": histogram,
        "wanted": {"languages": settings.languages, "threshold": settings.threshold, **minimums},
    }
    if thresholds:
        manifest.summary["wanted"]["thresholds"] = thresholds
    return files


main = Program("language.select", __doc__, Task, body)


if __name__ == "__main__":
    raise SystemExit(main())
