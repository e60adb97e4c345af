"""Keep the documents whose best language is wanted and scored high enough, and those of sources that skip this filter.

Rules: `language` (another language: no number is compared, `detail` names the language found), `score` (below `threshold`), and, of what
language.compare measured, `agreement_min` and `script_min`; what it has no number for passes. The
default threshold 0.65 is FineWeb's (datatrove, src/datatrove/pipeline/filters/language_filter.py).
LOOSER_THRESHOLDS has lower ones of languages that are wanted by name.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core import language_codes
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import parquet_file, rows, select_shard
from crawl2llm.formats.verdicts import FailedRule, verdict_row

# lid.176 shares the probability of these among near relatives: at 0.65 it drops between 5 and 100 of 100 passages of their Universal
# Declaration of Human Rights, and none of the English one (docs/filters/language.md).
LOOSER_THRESHOLDS = {"af": 0.55, "hr": 0.3, "id": 0.6, "no": 0.6, "sl": 0.55, "sw": 0.35}


# What language.compare measures, and the key and rule that is its least.
COMPARED_RULES = {"agreement": "agreement_min", "script_share": "script_min"}


def thresholds_by_language(settings: dict[str, Any]) -> dict[str, float]:
    """The thresholds of languages that have one: the config's, and for a language that `languages` names that of LOOSER_THRESHOLDS."""
    threshold = settings["threshold"]
    looser = {
        name: LOOSER_THRESHOLDS[name]
        for name in settings["languages"]
        if LOOSER_THRESHOLDS.get(name, threshold) < threshold
    }
    return {**looser, **settings.get("thresholds", {})}


def judge_document(
    row: dict[str, Any],
    languages: frozenset[str],
    threshold: float,
    thresholds: dict[str, float] | None = None,
    minimums: dict[str, float] | None = None,
) -> dict[str, Any]:
    """The verdict on one signals row. An empty `languages` keeps every language. thresholds: of languages with one of their own.
    minimums: thresholds of `agreement` and `script_share`, where they are compared.
    """
    failed = []
    own_threshold = language_codes.lookup_label(thresholds or {}, row["language"])
    limits = {"score": (row["score"], threshold if own_threshold is None else own_threshold)}
    for measure, name in COMPARED_RULES.items():
        if measure in (minimums or {}) and row[measure] is not None:
            limits[name] = row[measure], (minimums or {})[measure]
    if languages and not language_codes.is_listed(row["language"], languages):
        failed.append(FailedRule("language", detail=row["language"]))
    failed += [FailedRule(name, value, limit) for name, (value, limit) in limits.items() if value < limit]
    return verdict_row(row["id"], failed)


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    languages, threshold = frozenset(settings["languages"]), settings["threshold"]
    thresholds = thresholds_by_language(settings)
    minimums = {measure: settings[name] for measure, name in COMPARED_RULES.items() if settings.get(name) is not None}
    # A shard's in memory, where anything is compared.
    paths = map(parquet_file, args.compared if minimums else [])
    comparison_by_id = {row["id"]: row for path in paths for row in rows(path, ["id", *COMPARED_RULES])}

    def judge_row(row: dict[str, Any]) -> dict[str, Any]:
        return judge_document(
            {**row, **comparison_by_id.get(row["id"], {})}, languages, threshold, thresholds, minimums
        )

    files = select_shard(args.signals, judge_row, manifest, args.manifest, settings["skipped_by"])
    histogram: dict[str, int] = {}
    for row in rows(parquet_file(args.signals), ["language"]):
        histogram[row["language"]] = histogram.get(row["language"], 0) + 1
    wanted = {"languages": settings["languages"], "threshold": threshold}
    manifest.summary |= {"languages": histogram, "wanted": wanted}
    if minimums:
        manifest.summary["wanted"] |= {COMPARED_RULES[measure]: limit for measure, limit in minimums.items()}
    if thresholds:
        manifest.summary["wanted"]["thresholds"] = thresholds
    return files


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "language.select",
        __doc__,
        "--config config.yaml --signals results/main/language/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same language.score shard")
    parser.add_argument(
        "--compared",
        type=Path,
        nargs="*",
        default=[],
        help="manifest of the same language.compare shard, where it is used",
    )
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
