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
from crawl2llm.chain.command_line import Parser, add_configfile_option, command_parser, print_error
from crawl2llm.chain.freshness import fingerprint_differences
from crawl2llm.chain.project import Project
from crawl2llm.core import checkpoint_folders, errors, record, run_lock
from crawl2llm.core.console import Progress, format_quantity, log, print_line, set_up_logging
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest, digest
from crawl2llm.workflow.project_checks import check_project


@dataclass
class ChangedResult:
    """A result that was made with other settings or code. mark: the fingerprint that is expected now; changes: what differs."""

    manifest: Manifest
    mark: str
    changes: list[str]


@dataclass
class Findings:
    """What was looked at. acceptable: results that could be accepted, by step; taken_along: results of steps below them that nobody named,
    and that differ in nothing of their own; refused: why a result cannot be, by its path.
    """

    acceptable: dict[str, list[ChangedResult]] = field(default_factory=dict)
    taken_along: list[ChangedResult] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)


def expected_manifests(project: Project) -> Iterator[tuple[str, Path, str, str]]:
    """(variant, path, step, fingerprint) of every manifest that a run under this config would look at, each once, in the order of steps."""
    seen: set[str] = set()
    for variant, config in project.variants.items():
        for step in [name for name in steps.used_steps(config) if name not in steps.PAGES]:
            for task in steps.result_ids(step, config):
                path = project.manifest_path(variant, step, task)
                if path not in seen:
                    seen.add(path)
                    yield variant, Path(path), step, project.fingerprint(variant, step, task)


def compare_results(project: Project, steps_wanted: list[str]) -> Findings:
    """Compare every result with what is expected now; files of those that could be accepted are read and compared too."""
    findings, manifests = Findings(), list(expected_manifests(project))
    settled: set[Path] = set()  # manifests that are of today's fingerprint, or will be
    progress = Progress(len(manifests), "manifests")
    for variant, path, step, mark in manifests:
        progress.add()
        is_named = not steps_wanted or step in steps_wanted
        manifest = project.freshness[variant].read_manifest(path)
        if manifest is None:
            if is_named and path.exists():
                findings.refused[path] = "damaged manifest"
            continue
        if manifest.fingerprint == digest(mark):
            settled.add(path)
            continue
        if not is_named:
            if is_taken_along(project, variant, manifest, mark, settled):
                findings.taken_along.append(ChangedResult(manifest, mark, []))
                settled.add(path)
            continue
        if why := project.freshness[variant].damage_reason(manifest, deep=True):
            findings.refused[path] = why
            continue
        before = record.read(path).get("fingerprint", {})
        if not before:
            findings.refused[path] = "nobody knows what it was made with: its record run.json is gone"
            continue
        changes = fingerprint_differences(before, json.loads(mark), whole=True)
        findings.acceptable.setdefault(step, []).append(ChangedResult(manifest, mark, changes))
        settled.add(path)
    return findings


def is_taken_along(project: Project, variant: str, manifest: Manifest, mark: str, settled: set[Path]) -> bool:
    """Whether a result differs in nothing but steps above all of whose results are `settled`, and belongs to what these hold."""
    assert manifest.path is not None
    if not early_cutoff.is_made_by(manifest, manifest.path, mark) or project.freshness[variant].damage_reason(manifest):
        return False
    before, now = (
        fingerprint.get(early_cutoff.UPSTREAM, {})
        for fingerprint in (record.read(manifest.path)["fingerprint"], json.loads(mark))
    )
    if before.keys() != now.keys():
        return False
    differ = [name for name, above in now.items() if before[name] != above]
    return all(path in settled for name in differ for path in manifests_above(project, variant, name))


def manifests_above(project: Project, variant: str, name: str) -> list[Path]:
    """The manifests of a step above, as a fingerprint names it: `language.select`, `finetune.train sft`, `corpus.write of main`."""
    step, _, task = name.partition(" ")
    if task == "of main":
        variant, task = "main", ""
    return [
        Path(project.manifest_path(variant, step, task_id))
        for task_id in ([task] if task else steps.result_ids(step, project.variants[variant]))
    ]


def accept_results(findings: Findings, reason: str, when: str) -> int:
    """Write the fingerprints that are expected now, and into the records what was accepted and why; returns the number of manifests."""
    number = 0
    for result in (other for results in findings.acceptable.values() for other in results):
        manifest, mark = result.manifest, digest(result.mark)
        assert manifest.path is not None
        # The record first: a manifest of today's fingerprint beside a record of another would describe a run that never was.
        # Where this was interrupted between the two, the record has it already.
        if record.read(manifest.path)["fingerprint"] != json.loads(result.mark):
            entry = {
                "from": manifest.fingerprint,
                "to": mark,
                "changes": result.changes,
                "reason": reason,
                "when": when,
            }
            record.accept_fingerprint(manifest.path, result.mark, entry)
        checkpoint_folders.replace_fingerprint(early_cutoff.CHECKPOINTS, manifest.path, manifest.fingerprint, mark)
        manifest.accept_fingerprint(mark)
        number += 1
    for result in findings.taken_along:
        early_cutoff.renew_result(result.manifest, result.mark, result.manifest.sources, early_cutoff.CHECKPOINTS)
    return number


def difference_lines(findings: Findings) -> Iterator[str]:
    """What differs, for a person."""
    for step, results in findings.acceptable.items():
        changes = Counter("; ".join(result.changes) or "nothing that its record names" for result in results)
        for number, (words, count) in enumerate(changes.most_common()):
            yield f"{'' if number else step:<20} {count:>6,}  {words}"
    if findings.taken_along:
        below = Counter(other.manifest.step for other in findings.taken_along)
        yield f"taken along {len(findings.taken_along):>9,}  results below, in which nothing of their own differs: {', '.join(below)}"
    for words, count in Counter(findings.refused.values()).most_common(20):
        path = next(path for path, why in findings.refused.items() if why == words)
        more = f" and {count - 1:,} more" if count > 1 else ""
        yield f"not accepted: {path}{more}: {words}"


def person_agrees(question: str) -> bool:
    """Whether a person types y."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        print_line("\nnobody can be asked here: --yes does it without a question")
        return False


def argument_parser() -> Parser:
    """The command line."""
    parser = command_parser(
        "crawl2llm accept",
        __doc__,
        '--configfile mine.yaml --reason "renamed a function" language.score language.select',
        allow_abbrev=False,
    )
    parser.add_argument(
        "steps", nargs="*", metavar="STEP", help="steps to accept, such as language.score; default: all"
    )
    add_configfile_option(parser, "the run's config (default: config.yaml)")
    parser.add_argument("--reason", help="why the results are the same; without it nothing is accepted, only shown")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def main(argv: list[str] | None = None) -> int:
    args = argument_parser().parse_args(argv)
    set_up_logging("accept")
    try:
        if unknown := [name for name in args.steps if name not in steps.STEPS]:
            raise InputError(f"{unknown[0]!r} is not a step; allowed are {', '.join(steps.STEPS)}")
        if args.reason:
            run_lock.take_lock(run_lock.RUN)
        project = Project.from_files([Path(name) for name in args.configfile])
        check_project(project)
        findings = compare_results(project, args.steps)
        print_line("\n".join(difference_lines(findings)))
        if not findings.acceptable:
            print_line("nothing to accept: all results were made with these settings and this code")
            return int(bool(findings.refused))
        number = sum(len(results) for results in findings.acceptable.values())
        if not args.reason:
            print_line(
                f"{format_quantity(number, 'result differs', 'results differ')}; to accept: --reason 'why nothing in it changed'"
            )
            return 0
        if not (
            args.yes
            or person_agrees(f"accept {format_quantity(number, 'result')} as made by today's settings and code? [y/N] ")
        ):
            print_line("nothing was accepted")
            return 1
        accept_results(findings, args.reason, time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    except (InputError, errors.ConfigError, OSError, run_lock.RunInProgressError) as error:
        return print_error(str(error))
    log.info("accepted %s results; `crawl2llm plan` says what is left to do", f"{number:,}")
    return int(bool(findings.refused))


if __name__ == "__main__":
    sys.exit(main())
