"""What of a run's folder the config does not use: lists it with sizes and what it costs to have it again, and removes it after a question.

models: results of models that the config no longer has, which a run sets aside in results/*/unused/. checkpoints: old ones of trainings
that ended. results: of steps and variants that the config does not use. caches: of plans and commands. What the config uses or names
stays, nothing outside the folder is removed, and no link is followed. `make clean` removes everything.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from crawl2llm.chain import command_line
from crawl2llm.chain.project import Project
from crawl2llm.commands.accept import person_agrees
from crawl2llm.commands.clean import candidates
from crawl2llm.commands.clean.candidates import KINDS, Item
from crawl2llm.core import code_snapshot, run_folder, run_lock
from crawl2llm.core.console import print_line, set_up_logging
from crawl2llm.core.errors import InputError
from crawl2llm.core.nested_dicts import flatten
from crawl2llm.core.phrases import and_more
from crawl2llm.slurm import guard
from crawl2llm.training.estimate.parts import format_bytes
from crawl2llm.workflow.stale_results import removal_order

MOST_KEYS = 5  # keys that a text names


def removal_lines(items: list[Item], notes: Iterable[str]) -> Iterator[str]:
    """What could be removed, an entry a line, and what stays."""
    yield from (item.format_line() for item in items)
    yield from notes
    total = sum(item.bytes for item in items)
    yield f"{format_bytes(total):>9}  in all" if items else "nothing to free: the config uses all that is here"


def remove_items(items: Iterable[Item]) -> Iterator[str]:
    """Remove entries in the order of `stale_results.removal_order`. Returns a line for each path that cannot be removed."""
    for item in items:
        for path in item.paths:
            if not candidates.is_plain(path):  # it was, when the list was made
                yield f"{path} stays: it is a link, or lies behind one"
                continue
            try:
                for file in sorted(candidates.files_below(path), key=removal_order):
                    file.unlink(missing_ok=True)
                if path.is_dir():
                    shutil.rmtree(path)
            except OSError as error:
                yield run_folder.error_line(error, path)
            for folder in path.parents[:-1]:
                with contextlib.suppress(OSError):  # not empty
                    folder.rmdir()


def config_change_text(project: Project) -> str:
    """Which keys differ from the config that the last run here had, in words; "" without a run, and with its config."""
    for path in sorted(code_snapshot.FOLDER.glob("*.json")):
        try:
            before = flatten(json.loads(path.read_bytes()))
        except (OSError, ValueError, AttributeError):
            continue
        now, absent = flatten(json.loads(json.dumps(project.variants["main"]))), object()
        keys = sorted(key for key in before.keys() | now.keys() if before.get(key, absent) != now.get(key, absent))
        if keys:
            return f"the last run here had another config: {and_more(keys, MOST_KEYS)} differ"
    return ""


def argument_parser() -> command_line.Parser:
    """The command line."""
    parser = command_line.command_parser(
        "crawl2llm clean", __doc__, "--dry-run\n  crawl2llm clean checkpoints caches --configfile mine.yaml --yes"
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"what to look for: {', '.join(KINDS)} (all)")
    parser.add_argument("-n", "--dry-run", action="store_true", help="look only: nothing is asked, removed or written")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    command_line.add_configfile_option(parser, "the run's config (config.yaml of its folder)")
    parser.add_argument(
        "--directory", type=Path, default=Path(), help="the run's working directory, as of Snakemake (.)"
    )
    return parser


@command_line.report_errors
def main(argv: list[str] | None = None) -> int:
    args = argument_parser().parse_args(argv)
    set_up_logging("clean")
    if unknown := [kind for kind in args.kinds if kind not in KINDS]:
        raise InputError(f"{unknown[0]!r} is nothing to look for; allowed are {', '.join(KINDS)}")
    if not args.directory.is_dir():
        raise InputError(f"--directory is {args.directory}, which is not a folder")
    kinds = tuple(args.kinds) or KINDS
    configs = [Path(name).absolute() for name in args.configfile]
    with contextlib.chdir(args.directory):
        project = Project.from_files(configs)
        config_change = config_change_text(project)
        if args.dry_run:
            items, notes = candidates.removable_items(project, kinds)
            print_line("\n".join(removal_lines(items, [*notes, *filter(None, [config_change])])))
            return 0
        if config_change and args.yes and not configs:
            raise InputError(f"{config_change}. Name the run's config: --configfile FILE")
        try:
            with run_lock.hold_lock(run_lock.RUN):
                guard.check_driver(guard.DRIVER_FILE)
                return list_and_remove(project, kinds, args.yes, config_change)
        except (run_lock.RunInProgressError, guard.GuardError, run_folder.RunFolderError) as error:
            return command_line.print_error(str(error))


def list_and_remove(project: Project, kinds: tuple[str, ...], yes: bool, config_change: str) -> int:
    """List what the config does not use, and remove it if a person agrees; the exit status. config_change: of `config_change_text`."""
    items, notes = candidates.removable_items(project, kinds)
    print_line("\n".join(removal_lines(items, [*notes, *filter(None, [config_change])])))
    if not items:
        return 0
    if not (yes or person_agrees("remove this? [y/N] ")):
        print_line("nothing was removed")
        return 1
    failures = list(remove_items(items))
    print_line("\n".join([*failures, "the rest was removed" if failures else "removed"]))
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())
