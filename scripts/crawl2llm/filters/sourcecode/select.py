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
from crawl2llm.formats.verdicts import Failed, verdict

# Rules that compare a measure; those of line lengths are another for languages of long lines.
MEASURED = ("lines", "longest_line", "mean_line", "alphanumeric", "alphabetic", "encoded_run", "encoded_share")


TOKEN = re.compile(r"[()]|\b(?:AND|OR|WITH)\b|[^\s()]+", re.IGNORECASE)


def permitted(expression: str, licences: Collection[str]) -> bool:
    """Whether an SPDX expression allows a use under listed licences: of `A OR B` one is enough, of `A AND B` both are needed.

    Brackets count, and without them AND binds before OR (SPDX 2.3, annex D). `A WITH B` is a name of its own. What is no expression
    allows nothing.
    """
    wanted = {" ".join(name.lower().split()) for name in licences}
    tokens = [*TOKEN.findall(expression.lower()), ""]

    def either() -> bool:
        found = both()
        while tokens[0] == "or":
            tokens.pop(0)
            found |= both()
        return found

    def both() -> bool:
        found = one()
        while tokens[0] == "and":
            tokens.pop(0)
            found &= one()
        return found

    def one() -> bool:
        name = tokens.pop(0)
        if name == "(":
            found = either()
            if tokens.pop(0) != ")":
                raise ValueError
            return found
        if name in ("", ")", "and", "or", "with"):
            raise ValueError
        if tokens[0] == "with":
            tokens.pop(0)
            name = f"{name} with {tokens.pop(0)}"
        return name in wanted

    try:
        return either() and tokens == [""]
    except (ValueError, IndexError):
        return False


def failed(row: dict[str, Any], settings: dict[str, Any]) -> list[Failed]:
    """What drops a source file. row: of signals. settings: `sourcecode.select`."""
    out = []
    for name in MEASURED:
        rule = f"{name}_{'min' if name.startswith('alpha') else 'max'}"
        threshold = settings[rule]
        if row["data"] and name in ("longest_line", "mean_line"):
            threshold = settings["data_longest_line_max"] if name == "longest_line" else None
        if threshold is None:
            continue
        if row[name] < threshold if rule.endswith("_min") else row[name] > threshold:
            out.append(Failed(rule, row[name], threshold))
    if settings["generated"] and row["generated"]:
        out.append(Failed("generated", detail=row["generated"]))
    if settings["licences"] and row["spdx"] and not permitted(row["spdx"], settings["licences"]):
        out.append(Failed("licence", detail=row["spdx"]))
    return out


def judge(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one signals row."""
    found = failed(row, settings) if row["extension"] is not None else []
    return verdict(row["id"], found, stays=row["curated"])


def body(args: argparse.Namespace, settings: dict[str, Any], manifest: Manifest) -> list[Path]:
    judged = partial(judge, settings=settings)
    return select_shard(args.signals, judged, manifest, args.manifest, settings["skipped_by"])


def main(argv: list[str] | None = None) -> int:
    parser = command_line.parser(
        "sourcecode.select",
        __doc__,
        "--config config.yaml --signals results/main/sourcecode/score/00000.manifest.json --manifest /tmp/select/00000.manifest.json",
    )
    parser.add_argument("--signals", required=True, type=Path, help="manifest of the same sourcecode.score shard")
    return command_line.run(parser, body, argv)


if __name__ == "__main__":
    raise SystemExit(main())
