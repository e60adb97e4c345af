"""Drop source files that nobody wrote to be read; those of curated sources and of sources that skip this filter stay, and what is no code.

Rules: `lines_max`, `longest_line_max`, `mean_line_max`, `alphanumeric_min`, `alphabetic_min`, `encoded_run_max`, `encoded_share_max`, and
two that compare no number: `generated` (the head says that a program wrote it) and `licence` (the SPDX header names one that is not
allowed).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import select_shard
from crawl2llm.formats.verdicts import FailedRule, verdict_row

# Rules that compare a measure; those of line lengths are another for languages of long lines.
COMPARED_MEASURES = ("lines", "longest_line", "mean_line", "alphanumeric", "alphabetic", "encoded_run", "encoded_share")


TOKEN = re.compile(r"[()]|\b(?:AND|OR|WITH)\b|[^\s()]+", re.IGNORECASE)


def is_permitted(expression: str, licences: Collection[str]) -> bool:
    """Whether an SPDX expression allows a use under listed licences: of `A OR B` one is enough, of `A AND B` both are needed.

    Brackets count, and without them AND binds before OR (SPDX 2.3, annex D). `A WITH B` is a name of its own. What is no expression
    allows nothing.
    """
    allowed_names = {" ".join(name.lower().split()) for name in licences}
    tokens = [*TOKEN.findall(expression.lower()), ""]

    def parse_or() -> bool:
        is_allowed = parse_and()
        while tokens[0] == "or":
            tokens.pop(0)
            is_allowed |= parse_and()
        return is_allowed

    def parse_and() -> bool:
        is_allowed = parse_licence()
        while tokens[0] == "and":
            tokens.pop(0)
            is_allowed &= parse_licence()
        return is_allowed

    def parse_licence() -> bool:
        name = tokens.pop(0)
        if name == "(":
            is_allowed = parse_or()
            if tokens.pop(0) != ")":
                raise ValueError
            return is_allowed
        if name in ("", ")", "and", "or", "with"):
            raise ValueError
        if tokens[0] == "with":
            tokens.pop(0)
            name = f"{name} with {tokens.pop(0)}"
        return name in allowed_names

    try:
        return parse_or() and tokens == [""]
    except (ValueError, IndexError):
        return False


def failed_rules(row: dict[str, Any], settings: dict[str, Any]) -> list[FailedRule]:
    """What drops a source file. row: of signals. settings: `sourcecode.select`."""
    out = []
    for name in COMPARED_MEASURES:
        rule = f"{name}_{'min' if name.startswith('alpha') else 'max'}"
        threshold = settings[rule]
        if row["data"] and name in ("longest_line", "mean_line"):
            threshold = settings["data_longest_line_max"] if name == "longest_line" else None
        if threshold is None:
            continue
        if row[name] < threshold if rule.endswith("_min") else row[name] > threshold:
            out.append(FailedRule(rule, row[name], threshold))
    if settings["generated"] and row["generated"]:
        out.append(FailedRule("generated", detail=row["generated"]))
    if settings["licences"] and row["spdx"] and not is_permitted(row["spdx"], settings["licences"]):
        out.append(FailedRule("licence", detail=row["spdx"]))
    return out


def judge_document(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one signals row."""
    failures = failed_rules(row, settings) if row["extension"] is not None else []
    return verdict_row(row["id"], failures, stays=row["curated"])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judge_row = partial(judge_document, settings=settings)
    return select_shard(args.signals, judge_row, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = command_line.step_parser(
        "sourcecode.select",
        __doc__,
        "--config config.yaml --signals results/main/sourcecode/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same sourcecode.score shard")
    return command_line.run_step(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
