"""What would run, and why: one line for each rule and reason, with its number of tasks. Runs nothing.

Options that are not listed go to Snakemake as they are: --configfile mine.yaml, --profile profiles/slurm, --until …
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.common import record
from scripts.common.config import ROOT
from scripts.common.freshness import WORDS
from scripts.pretrain.expected import MARK

__tracked__ = False

RULE = re.compile(r"^(?:local)?(?:rule|checkpoint) (\w+):$")
REASON = re.compile(r"^\s+reason: (.*)$")
ENDS = ("This was a dry-run", "Nothing to be done")  # Snakemake says one of them where it has planned to the end
SHORTER = (
    (re.compile(r"Missing output files: .*"), "not made yet"),
    (re.compile(rf"Params have changed since last execution: {WORDS}(.*)"), r"\1"),
    (re.compile(r"Input files updated by another job: .*"), "a step that it reads runs again"),
)


def short(reason: str) -> list[str]:
    """Snakemake's reasons in short, each once."""
    found = []
    for part in reason.split("; "):
        words = next((pattern.sub(text, part) for pattern, text in SHORTER if pattern.match(part)), part)
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
        elif re.match(r"error: |[\w.]*(Error|Exception)\b", line) or errors:
            errors.append(line.rstrip())
    rules.pop("all", None)
    return rules, errors


def newer(results: Path) -> list[str]:
    """Where today's libraries are not those that the results were made with; that alone reruns nothing."""
    then: dict[str, set[str]] = {}
    for path in results.glob("*/*/*/*run.json"):
        made = record.read(path.with_name(path.name.replace("run.json", "manifest.json"))).get("versions", {})
        for name, version in made.items():
            now = platform.python_version() if name == "python" else record.version(name)
            if now and version != now:
                then.setdefault(f"{name} {version}, now {now}", set()).add(".".join(path.parts[-3:-1]))
    return [f"made with {versions}: {', '.join(sorted(steps))}" for versions, steps in sorted(then.items())]


def show(lines: Iterable[str]) -> int:
    """Print the plan in a dry run's output; the exit status."""
    lines = list(notes(lines))
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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="crawl2llm plan",
        description=__doc__,
        epilog="example:\n  crawl2llm plan --configfile mine.yaml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--profile", default="profiles/local", help="Snakemake's profile (default: %(default)s)")
    args, more = parser.parse_known_args(argv)
    if not Path("Snakefile").exists() and not {"-s", "--snakefile"} & set(more):  # in the folder of a run
        more = ["--snakefile", str(ROOT / "Snakefile"), *more]
    profile = args.profile if Path(args.profile).exists() else str(ROOT / args.profile)
    command = [sys.executable, "-m", "snakemake", "--profile", profile, "--dry-run", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    status = show(done.stdout.splitlines())
    if done.returncode and not status:
        print(done.stdout)
    for line in newer(Path("results")):
        print(line)
    return status or done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
