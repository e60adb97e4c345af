"""What would run, why, and about how long it takes: one line for each rule and reason. Runs nothing.

Options that are not listed go to Snakemake as they are: --configfile mine.yaml, --profile profiles/slurm, --until …
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from crawl2llm.chain import config as configuration
from crawl2llm.chain import steps, yaml_errors
from crawl2llm.chain.command_line import command_parser
from crawl2llm.chain.freshness import KEEP_RENAMED, MODULES_RENAMED
from crawl2llm.chain.project import Project
from crawl2llm.commands.plan import dryrun, exports, halving_savings, training, tuning, variants, words
from crawl2llm.commands.plan.complete import Plan
from crawl2llm.commands.plan.dryrun import Task
from crawl2llm.commands.plan.estimate import Work, estimates_by_rule
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.commands.plan.reasons import INPUT_UPDATED, PARAMS_CHANGED, reasons_by_rule
from crawl2llm.core import errors, processors, record, secret_masking
from crawl2llm.core.console import print_line
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import write_atomically
from crawl2llm.core.root import ROOT
from crawl2llm.slurm import local_plugin
from crawl2llm.stages.pretrain.auto_preview import MARK
from crawl2llm.workflow import stale_results, unused, variant_placement

WIDTH = 120  # columns at most


def without_auto_lines(lines: Iterable[str]) -> Iterator[str]:
    """The lines, after those on what is `auto` have been printed."""
    for line in lines:
        if line.startswith(MARK):
            print_line(line.rstrip())
        else:
            yield line


def version_change_lines(results: Path) -> list[str]:
    """Where today's libraries are not those that the results were made with; that alone reruns nothing."""
    steps_by_change: dict[str, set[str]] = {}
    for folder in results.glob("*/*/*/"):
        # The records of a step's shards are mostly the same bytes: each is read, and one of the equal ones parsed.
        for text in {record.record_bytes(path) for path in folder.glob("*run.json")}:
            for name, version in record.parse_record(text).get("versions", {}).items():
                now = platform.python_version() if name == "python" else record.installed_version(name)
                if now and version != now:
                    steps_by_change.setdefault(f"{name} {version}, now {now}", set()).add(".".join(folder.parts[-2:]))
    return [f"made with {versions}: {', '.join(sorted(steps))}" for versions, steps in sorted(steps_by_change.items())]


def dry_run(command: list[str]) -> tuple[int, list[str], list[str]]:
    """(exit status, what Snakemake printed, what `version_change_lines` says of the folder that it works in), made at the same time."""
    output: list[str] = []
    version_changes: Future[list[str]] | None = None
    with (
        ThreadPoolExecutor(1) as executor,
        subprocess.Popen(
            command, env=local_plugin.project_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        for line in process.stdout or ():
            output.append(secret_masking.mask(line.rstrip("\n")))
            if version_changes is None and dryrun.FOLDER_LINE.match(line):
                version_changes = executor.submit(
                    version_change_lines, dryrun.working_directory([output[-1]]) / "results"
                )
    return process.returncode, output, version_changes.result() if version_changes else []


def parse_config_options(options: list[str]) -> argparse.Namespace:
    """The config files (`configfile`) and single keys (`config`) among Snakemake's options."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", type=Path, default=[])
    parser.add_argument("--config", "-C", nargs="*", default=[])
    return parser.parse_known_args(options)[0]


def config_of_options(options: list[str], folder: Path) -> dict[str, Any] | None:
    """The complete config that Snakemake's options name, or that of the run's folder; None if there is none that is readable."""
    parsed = parse_config_options(options)
    try:
        tree = yaml_errors.read_layered(parsed.configfile or [folder / "config.yaml"])
        for name, _, value in (entry.partition("=") for entry in parsed.config):
            tree = configuration.merge_dicts(tree, {name: yaml.safe_load(value)})
        with contextlib.chdir(folder):  # which folders of plug-ins are relative to
            return configuration.validate(tree)
    except (yaml.YAMLError, errors.ConfigError, OSError):
        return None


def project_of(config: dict[str, Any], folder: Path) -> Project | None:
    """The project in the folder of a run; None if its source files changed while the plan was made."""
    try:
        with contextlib.chdir(folder):
            return Project(config)
    except (errors.ConfigError, InputError):
        return None


def add_own_reasons(tasks: Iterable[Task], project: Project, folder: Path) -> None:
    """Add what differs of its own to the reason of each task that runs because of one above: Snakemake does not ask these."""
    with contextlib.chdir(folder):
        for task in tasks:
            reason, config = task.facts.get("reason", ""), project.variants.get(task.variant)
            if (
                not reason.startswith(INPUT_UPDATED)
                or PARAMS_CHANGED in reason
                or config is None
                or task.step not in steps.STEPS
            ):
                continue
            if difference := project.why_stale(
                task.variant, task.step, steps.result_ids_of_task(task.step, task.id, config)
            ):
                task.facts["reason"] = f"{PARAMS_CHANGED}{difference}; {reason}"


def available_cores(profile: Path, options: list[str]) -> int | None:
    """The cores that a run may use on this machine; None if SLURM starts its tasks."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(profile.glob("config*.yaml"))]
    if any(re.search(r"^executor: slurm\b", text, re.MULTILINE) for text in texts):
        return None
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--cores", "-c", "--jobs", "-j")
    counts = [parser.parse_known_args(options)[0].cores, *re.findall(r"^cores: *(\w+)", "\n".join(texts), re.MULTILINE)]
    number = next(filter(None, counts), "all")
    return max(1, int(number)) if number.isdigit() else processors.usable_cores()


def startup_change_lines(project: Project, folder: Path) -> Iterator[str]:
    """What a run in `folder` removes, sets aside and brings back when it starts, in words."""
    with contextlib.chdir(folder):
        if paths := stale_results.stale_files(project.variants):
            yield f"the run first removes {stale_results.stale_files_text(paths)}"
        if moves := list(unused.moves_aside(project.variants)):
            yield f"the run first sets aside {unused.moves_text(moves)}, {unused.LEAVING_TEXT}"
        if moves := unused.moves_back(project):
            yield f"the run first brings back {unused.moves_text(moves)} {unused.RETURN_TEXT}"


def drop_returning_tasks(tasks: list[Task], project: Project, folder: Path) -> list[Task]:
    """The tasks without those whose results come back when the run starts; a task that a person forces runs all the same."""
    with contextlib.chdir(folder):
        back = {(move.variant, move.step, move.task) for move in unused.moves_back(project)}
    return [
        task
        for task in tasks
        if (task.variant, task.step, task.id) not in back or "Forced execution" in task.facts.get("reason", "")
    ]


def build_plan(tasks: list[Task], folder: Path, options: list[str] | None, profile: Path) -> Plan:
    """The plan of these tasks. options: those that Snakemake was given."""
    config = None if options is None else config_of_options(options, folder)
    project = project_of(config, folder) if config else None
    if project:
        tasks = drop_returning_tasks(tasks, project, folder)
        add_own_reasons(tasks, project, folder)
    variants_and_sources = (project.variants, project.sources) if project else (None, None)
    work, core_count = Work(LastRun(folder), tasks, *variants_and_sources), available_cores(profile, options or [])
    return Plan(tasks, project, work, core_count, estimates_by_rule(tasks, work, core_count))


def print_plan(
    lines: Iterable[str],
    options: list[str] | None = None,
    profile: Path = ROOT / "profiles/local",
    pictures: dict[str, Path] | None = None,
) -> int:
    """Print the plan in a dry run's output; the exit status. options: those that Snakemake was given; pictures: kind → file to write."""
    lines = list(without_auto_lines(lines))
    tasks, errors = dryrun.parse_output(lines)
    if not errors and not any(line.startswith(dryrun.COMPLETE_MESSAGES) for line in lines):
        # Refused, killed, or not Snakemake's at all.
        errors = [*filter(None, lines), "error: Snakemake ended before its plan was complete; its messages are above"]
    if errors:
        # Of an option that it does not know, Snakemake first prints all that it does.
        usage = [line.partition(": ")[2] for line in lines if ": error: " in line and lines[0].startswith("usage: ")]
        print_line("\n".join(usage or errors))
        return 1
    if not tasks:
        print_line("nothing to do: every result is up to date")
        if not pictures:
            return 0
    plan = build_plan(tasks, dryrun.working_directory(lines), options, profile)
    tasks = plan.tasks
    columns = shutil.get_terminal_size((WIDTH, 0)).columns if sys.stdout.isatty() else WIDTH
    width = min(WIDTH, max(80, columns))
    if tasks:
        print_line(
            "\n".join(
                words.plan_lines(
                    reasons_by_rule(tasks, plan.project.variants if plan.project else None),
                    plan.costs,
                    plan.uses_gpus,
                    width,
                )
            )
        )
        for line in variants.variant_lines(plan, width):
            print_line(line)
        if any(MODULES_RENAMED in task.facts.get("reason", "") for task in tasks):
            print_line(KEEP_RENAMED)
        closing = words.total_text(plan.costs, plan.uses_gpus, plan.cores)
        if any(task.step == steps.FETCH for task in tasks):
            print_line(
                "\n".join(
                    textwrap.wrap(
                        words.copy_size_text(tasks, plan.work.last, plan.work.variants), width, break_on_hyphens=False
                    )
                )
            )
        print_line("\n".join(textwrap.wrap(closing, width, break_on_hyphens=False)))
        for line in startup_change_lines(plan.project, plan.work.last.folder) if plan.project else ():
            print_line("\n".join(textwrap.wrap(line, width, subsequent_indent="    ", break_on_hyphens=False)))
        shared = variant_placement.difference_lines(plan.project) if plan.project else ()
        export_lines = exports.export_obstacle_lines(tasks, plan.project.variants) if plan.project else ()
        for line in [
            *halving_savings.saving_lines(plan),
            *shared,
            *training.training_lines(tasks, plan.work),
            *tuning.tuning_lines(tasks, plan.work),
            *export_lines,
        ]:
            indent = "  " if line.startswith("  ") else ""
            print_line(
                "\n".join(
                    textwrap.wrap(line, width, initial_indent=indent, subsequent_indent="    ", break_on_hyphens=False)
                )
            )
    return write_pictures(plan, pictures) if pictures else 0


def write_pictures(plan: Plan, pictures: dict[str, Path]) -> int:
    """Write the pictures of a plan and say where they are; the exit status."""
    from crawl2llm.commands.plan.picture import output  # its layout engine is loaded only where a picture is wanted

    if plan.project is None:
        print_line(
            "error: no picture was written: the config cannot be read as Snakemake read it, or files changed meanwhile"
        )
        return 1
    for kind, text in output.picture_texts(plan, list(pictures)).items():
        write_atomically(pictures[kind], text)
        print_line(f"picture: {pictures[kind]}")
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = command_parser(
        "crawl2llm plan", __doc__, "--configfile mine.yaml --profile profiles/slurm", allow_abbrev=False
    )
    parser.add_argument("--profile", default="profiles/local", help="Snakemake's profile (default: %(default)s)")
    parser.add_argument(
        "--html",
        nargs="?",
        const="plan.html",
        type=Path,
        metavar="FILE",
        help="also draw it as a page for a browser (default: %(const)s)",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also draw it as one SVG file")
    args, more = parser.parse_known_args(argv)
    pictures = {kind: path.absolute() for kind, path in (("html", args.html), ("svg", args.svg)) if path}
    for kind, path in pictures.items():
        if not path.parent.is_dir() or path.is_dir():
            parser.error(
                f"--{kind} {path}: {path if path.is_dir() else path.parent} is {'a' if path.is_dir() else 'no'} folder"
            )
    profile = args.profile if Path(args.profile).exists() else str(ROOT / args.profile)
    options = list(more)
    if unreadable := yaml_errors.main(map(str, parse_config_options(options).configfile)):
        return unreadable
    if not Path("Snakefile").exists() and not {"-s", "--snakefile"} & set(more):  # in the folder of a run
        more = ["--snakefile", str(ROOT / "Snakefile"), *more]
    command = [*local_plugin.module_command(), "--profile", profile, "--dry-run", *more]
    exit_status, output, differing = dry_run(command)
    status = print_plan(output, options, Path(profile), pictures)
    if exit_status and not status:
        print_line("\n".join(output))
    for line in differing:
        print_line(line)
    return status or exit_status


if __name__ == "__main__":
    raise SystemExit(main())
