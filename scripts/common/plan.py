"""Reads `snakemake --dry-run` and prints one line for each rule: how many tasks would run, and why.

snakemake --profile profiles/local --dry-run 2>&1 | python -m scripts.common.plan
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from scripts.pretrain.expected import MARK

__tracked__ = False

RULE = re.compile(r"^(?:local)?(?:rule|checkpoint) (\w+):$")
REASON = re.compile(r"^\s+reason: (.*)$")
ENDS = ("This was a dry-run", "Nothing to be done")  # Snakemake says one of them where it has planned to the end
SHORTER = (
    (re.compile(r"Missing output files: .*"), "not made yet"),
    (re.compile(r"Params have changed since last execution.*"), "settings, code or something upstream changed"),
    (re.compile(r"Set of input files has changed since last execution.*"), "other input files"),
    (re.compile(r"Input files updated by another job: .*"), "a step that it reads runs again"),
)


def short(reason: str) -> list[str]:
    """Snakemake's reasons in short, each once."""
    found = []
    for part in reason.split("; "):
        words = next((text for pattern, text in SHORTER if pattern.match(part)), part)
        if words not in found:
            found.append(words)
    return found


def notes(lines: Iterable[str]) -> Iterator[str]:
    """The lines, after those on what is `auto` have been printed."""
    for line in lines:
        if line.startswith(MARK):
            print(line.rstrip())
        else:
            yield line


def plan(lines: Iterable[str]) -> tuple[dict[str, Counter[str]], list[str]]:
    """(rule → how many tasks for each reason, in order of appearance; lines of errors) from a dry run's output."""
    rules: dict[str, Counter[str]] = {}
    errors: list[str] = []
    rule = None
    for line in lines:
        if match := RULE.match(line):
            rule = match.group(1)
            rules.setdefault(rule, Counter())
        elif rule and (match := REASON.match(line)):
            rules[rule][" + ".join(short(match.group(1)))] += 1
            rule = None
        elif re.search(r"(Error|Exception)\b", line) or errors:
            errors.append(line.rstrip())
    rules.pop("all", None)
    return rules, errors


def main() -> int:
    lines = [line.rstrip("\n") for line in notes(sys.stdin)]
    rules, errors = plan(lines)
    if not errors and not any(line.startswith(ENDS) for line in lines):  # refused, killed, or not Snakemake's at all
        errors = [*filter(None, lines), "error: Snakemake ended before its plan was complete; what it said is above"]
    if errors:
        print("\n".join(errors))
        return 1
    if not rules:
        print("nothing to do: every result is up to date")
        return 0
    print(f"{'rule':<20} {'tasks':>6}  why")
    for rule, reasons in rules.items():
        for number, (reason, count) in enumerate(reasons.most_common()):
            print(f"{'' if number else rule:<20} {count:>6,}  {reason}")
    print(f"{'total':<20} {sum(sum(reasons.values()) for reasons in rules.values()):>6,}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
