"""Mark existing results as made by today's settings and code, where a person knows that an edit changes nothing in them.

For a refactoring, or a new key whose default is what was done before. It shows what differs for each step, asks, and keeps the
reason beside each manifest, for the report. Results that are missing, damaged, or made from other input are never accepted.
The report is not either: it is made again, and shows what was accepted. If steps are named, what is below them is taken along as far as
nothing of its own differs: a run would only find out that it comes out the same.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crawl2llm.chain import early_cutoff, steps
from crawl2llm.chain.command_line import Parser, configfile_option, described, fail
from crawl2llm.chain.freshness import difference
from crawl2llm.chain.project import Project
from crawl2llm.core import checkpoint_folders, errors, record, run_lock
from crawl2llm.core.console import Progress, log, put, quantity, setup
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, digest
from crawl2llm.workflow.project_checks import check_project


@dataclass
class Other:
    """A result that was made with other settings or code. mark: the fingerprint that is expected now; changes: what differs."""

    manifest: Manifest
    mark: str
    changes: list[str]


@dataclass
class Found:
    """What was looked at. other: results that could be accepted, by step; along: results of steps below them that nobody named, and that
    differ in nothing of their own; refused: why a result cannot be, by its path.
    """

    other: dict[str, list[Other]] = field(default_factory=dict)
    along: list[Other] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)


def expected(project: Project) -> Iterator[tuple[str, Path, str, str]]:
    """(variant, path, step, fingerprint) of every manifest that a run under this config would look at, each once, in the order of steps."""
    seen: set[str] = set()
    for variant, config in project.variants.items():
        for step in [name for name in steps.used(config) if name not in steps.PAGES]:
            for task in steps.ids(step, config):
                path = project.manifest(variant, step, task)
                if path not in seen:
                    seen.add(path)
                    yield variant, Path(path), step, project.fingerprint(variant, step, task)


def look(project: Project, wanted: list[str]) -> Found:
    """Compare every result with what is expected now; files of those that could be accepted are read and compared too."""
    found, asked = Found(), list(expected(project))
    settled: set[Path] = set()  # manifests that are of today's fingerprint, or will be
    progress = Progress(len(asked), "manifests")
    for variant, path, step, mark in asked:
        progress.add()
        named = not wanted or step in wanted
        manifest = project.freshness[variant].manifest(path)
        if manifest is None:
            if named and path.exists():
                found.refused[path] = "damaged manifest"
            continue
        if manifest.fingerprint == digest(mark):
            settled.add(path)
            continue
        if not named:
            if is_taken_along(project, variant, manifest, mark, settled):
                found.along.append(Other(manifest, mark, []))
                settled.add(path)
            continue
        if why := project.freshness[variant].spoiled(manifest, deep=True):
            found.refused[path] = why
            continue
        before = record.read(path).get("fingerprint", {})
        if not before:
            found.refused[path] = "nobody knows what it was made with: its record run.json is gone"
            continue
        changes = difference(before, json.loads(mark), whole=True)
        found.other.setdefault(step, []).append(Other(manifest, mark, changes))
        settled.add(path)
    return found


def is_taken_along(project: Project, variant: str, manifest: Manifest, mark: str, settled: set[Path]) -> bool:
    """Whether a result differs in nothing but steps above all of whose results are `settled`, and belongs to what these hold."""
    assert manifest.path is not None
    if not early_cutoff.is_made_by(manifest, manifest.path, mark) or project.freshness[variant].spoiled(manifest):
        return False
    before, now = (
        fingerprint.get(early_cutoff.ABOVE, {})
        for fingerprint in (record.read(manifest.path)["fingerprint"], json.loads(mark))
    )
    if before.keys() != now.keys():
        return False
    differ = [name for name, above in now.items() if before[name] != above]
    return all(path in settled for name in differ for path in above_of(project, variant, name))


def above_of(project: Project, variant: str, name: str) -> list[Path]:
    """The manifests of a step above, as a fingerprint names it: `language.select`, `finetune.train sft`, `corpus.write of main`."""
    step, _, task = name.partition(" ")
    if task == "of main":
        variant, task = "main", ""
    return [
        Path(project.manifest(variant, step, one))
        for one in ([task] if task else steps.ids(step, project.variants[variant]))
    ]


def accept(found: Found, reason: str, when: str) -> int:
    """Write the fingerprints that are expected now, and into the records what was accepted and why; returns the number of manifests."""
    number = 0
    for other in (other for made in found.other.values() for other in made):
        manifest, mark = other.manifest, digest(other.mark)
        assert manifest.path is not None
        # The record first: a manifest of today's fingerprint beside a record of another would describe a run that never was.
        # Where this was interrupted between the two, the record has it already.
        if record.read(manifest.path)["fingerprint"] != json.loads(other.mark):
            entry = {"from": manifest.fingerprint, "to": mark, "changes": other.changes, "reason": reason, "when": when}
            record.accept(manifest.path, other.mark, entry)
        checkpoint_folders.rename(early_cutoff.CHECKPOINTS, manifest.path, manifest.fingerprint, mark)
        manifest.accept(mark)
        number += 1
    for other in found.along:
        early_cutoff.renew(other.manifest, other.mark, other.manifest.sources, early_cutoff.CHECKPOINTS)
    return number


def lines(found: Found) -> Iterator[str]:
    """What differs, for a person."""
    for step, made in found.other.items():
        changes = Counter("; ".join(other.changes) or "nothing that its record names" for other in made)
        for number, (words, count) in enumerate(changes.most_common()):
            yield f"{'' if number else step:<20} {count:>6,}  {words}"
    if found.along:
        below = Counter(other.manifest.step for other in found.along)
        yield f"taken along {len(found.along):>9,}  results below, in which nothing of their own differs: {', '.join(below)}"
    for words, count in Counter(found.refused.values()).most_common(20):
        path = next(path for path, why in found.refused.items() if why == words)
        yield f"not accepted: {path}{f' and {count - 1:,} more' * (count > 1)}: {words}"


def agreed(question: str) -> bool:
    """Whether a person types y."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        put("\nnobody can be asked here: --yes does it without a question")
        return False


def parser() -> Parser:
    """The command line."""
    made = described(
        "crawl2llm accept",
        __doc__,
        '--configfile mine.yaml --reason "renamed a function" language.score language.select',
        allow_abbrev=False,
    )
    made.add_argument("steps", nargs="*", metavar="STEP", help="steps to accept, such as language.score; default: all")
    configfile_option(made, "the run's config (default: config.yaml)")
    made.add_argument("--reason", help="why the results are the same; without it nothing is accepted, only shown")
    made.add_argument("--yes", action="store_true", help="do not ask")
    return made


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    setup("accept")
    try:
        if unknown := [name for name in args.steps if name not in steps.STEPS]:
            raise InputError(f"{unknown[0]!r} is no step; allowed are {', '.join(steps.STEPS)}")
        if args.reason:
            run_lock.hold(run_lock.RUN)
        project = Project.of_files([Path(name) for name in args.configfile])
        check_project(project)
        found = look(project, args.steps)
        put("\n".join(lines(found)))
        if not found.other:
            put("nothing to accept: no result that is there was made with other settings or code")
            return int(bool(found.refused))
        number = sum(len(made) for made in found.other.values())
        if not args.reason:
            put(
                f"{quantity(number, 'result differs', 'results differ')}; to accept: --reason 'why nothing in it changed'"
            )
            return 0
        if not (
            args.yes or agreed(f"accept {quantity(number, 'result')} as made by today's settings and code? [y/N] ")
        ):
            put("nothing was accepted")
            return 1
        accept(found, args.reason, time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    except (InputError, errors.ConfigError, OSError, run_lock.Busy) as error:
        return fail(str(error))
    log.info("accepted %s results; `crawl2llm plan` says what is left to do", f"{number:,}")
    return int(bool(found.refused))


if __name__ == "__main__":
    sys.exit(main())
