"""The command line that every step shares: `--config`, `--manifest`, `--log`, and clear errors."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any

from crawl2llm.chain import config as configuration
from crawl2llm.chain import (
    data_folder,
    early_cutoff,
    exit_signals,
    gpu_slots,
    placement_options,
    plugins,
    skip_pandas,
    yaml_errors,
)
from crawl2llm.chain import fingerprint as fingerprints
from crawl2llm.chain.fingerprint import step_code
from crawl2llm.chain.steps import STEPS, WITH_OWN_SETTINGS, folder_of, program_words, task_ids
from crawl2llm.core import (
    checkpoint_folders,
    console,
    content_hash,
    errors,
    parent_watch,
    record,
    run_folder,
    shard_pool,
    task_costs,
)
from crawl2llm.core.console import print_line
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import (
    Manifest,
    ManifestError,
    canonical_json,
    combine_sources,
    consumed_inputs,
    digest,
    leaves_folder,
    links_out,
    record_inputs,
    task_of,
)

SOURCES = "sources"  # in a manifest's `inputs`: what a task consumed that is no manifest
RESULTS = "results"  # the folder of all results
LOGS = "logs"  # the folder of the logs of all tasks of a run
ONE_TASK_MANIFEST = "manifest.json"  # the name of a one-task step's manifest
# The manifest of a step's first task, by what numbers its tasks:
FIRST_TASKS = {
    "shard": "00000.manifest.json",
    "band": "00.manifest.json",
    "part": "000.manifest.json",
    "model": "base.manifest.json",
    "contender": "main-rung1.manifest.json",
}
LOG = "log"  # of all attempts at a training run, beside its checkpoints
Body = Callable[[argparse.Namespace, dict[str, Any], Manifest], list[Path]]
MENDABLE = (InputError, errors.ConfigError, ManifestError, OSError)  # errors that a person can do something about
RANGE = re.compile(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """An argument parser. takes_configs: whether it has the option that `add_configfile_option` adds."""

    takes_configs = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does; `--configfile` leaves words behind its files to other arguments."""
        words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(split_configfiles(words) if self.takes_configs else words, namespace)


def split_configfiles(words: Sequence[str]) -> list[str]:
    """A command line with `--configfile=FILE` for each file of `--configfile FILE…`: its first word, and all YAML files behind it.

    argparse would take every word up to the next option: also a document, a folder or KEY=VALUE.
    """
    out: list[str] = []
    at = 0
    while at < len(words):
        if words[at] != "--configfile" or at + 1 == len(words):
            out.append(words[at])
            at += 1
            continue
        first = at = at + 1
        while at < len(words) and (at == first or Path(words[at]).suffix in (".yaml", ".yml")):
            out.append(f"--configfile={words[at]}")
            at += 1
    return out


def add_configfile_option(parser: Parser, words: str) -> None:
    """Add `--configfile`, one file or several, each laid over those before it. words: its help."""
    parser.takes_configs = True
    parser.add_argument("--configfile", action="extend", nargs="+", default=[], metavar="FILE", help=words)


def command_parser(prog: str, doc: str | None, example: str, **more: Any) -> Parser:
    """An argument parser whose help is `doc`, the module's docstring, and an example: `prog` with the options as one would type them."""
    return Parser(
        prog=prog,
        description=doc,
        epilog=f"example:\n  {prog} {example}".rstrip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **more,
    )


def step_parser(step: str, doc: str | None, example: str, always: bool = False) -> argparse.ArgumentParser:
    """An argument parser with the options that all steps share; `doc` is the module's docstring.

    `example` is the command's options as one would type them, shown by `--help`. `always`: the step works even where its settings
    and input are as before (see `is_done`).
    """
    parser = command_parser(f"python -m {' '.join(program_words(step))}", doc, example)
    parser.set_defaults(step=step, always=always)
    parser.add_argument(
        "--config",
        required=True,
        help="a config file (its section for this step is taken), or the fingerprint that the workflow passes",
    )
    parser.add_argument("--manifest", required=True, type=Path, help="the manifest to write; data files go beside it")
    parser.add_argument(
        "--also", nargs="*", default=[], help="more shards to do, each as the one that --manifest names; it comes last"
    )
    parser.add_argument(
        "--at-once", type=int, default=1, help="shards to do at the same time, each by a process (default: 1)"
    )
    parser.add_argument("--log", type=Path, help="a file for the log, besides stderr")
    return parser


def add_placement_options(
    parser: argparse.ArgumentParser, step: str, target: bool | str = placement_options.PROGRAM
) -> None:
    """Add the placement keys of a step as options: the schema's names, types, choices, defaults and descriptions.

    target: placement_options.LAUNCHER for those of its launcher, of a program that has to know them too.
    """
    for key, node in placement_options.placement_keys(step, target).items():
        parser.add_argument(
            placement_options.option_flag(key),
            type=placement_options.value_parser(node),
            choices=node.get("enum"),
            metavar="{true,false}" if node.get("type") == "boolean" else None,
            default=node["default"],
            help=f"{node['description']} (default: {placement_options.option_text(node['default'])})".replace(
                "%", "%%"
            ),
        )


def verified_settings(step: str, config_option: str, task: str = "") -> tuple[dict[str, Any], str]:
    """The settings of a step's task and its fingerprint, from `--config`. task: as its manifest is called.

    A fingerprint is compared with the code and files that are here: see `check_as_planned`.
    """
    settings_and_mark = parse_settings(step, config_option, task)
    if config_option.lstrip().startswith("{"):
        check_as_planned(step, json.loads(config_option))
    return settings_and_mark


def parse_settings(step: str, config_option: str, task: str = "") -> tuple[dict[str, Any], str]:
    """The same, without the comparison.

    Raises InputError when `config_option` is neither a readable file nor the fingerprint of this step, and where a config file has no such
    model.
    """
    if config_option.lstrip().startswith("{"):
        try:
            body = json.loads(config_option)
        except ValueError as error:
            raise InputError(f"--config is neither a file nor a fingerprint: {error}") from error
        if body.get("step") != step:
            raise InputError(f"--config is the fingerprint of {body.get('step')!r}; this program is {step!r}")
        data, places, filters = (body.pop(key, None) for key in ("data", plugins.KEY, plugins.FILTERS_KEY))
        if places:
            plugins.use_plugins(places, filters or [])
        if data is None:
            return body["config"], canonical_json(body) if places else config_option
        return configuration.with_changed_paths(
            step, body["config"], partial(data_folder.to_folder, data=data)
        ), canonical_json(body)
    complete = configuration.validate(yaml_errors.read_config(Path(config_option)), source=config_option)
    task = task if STEPS[step].per in WITH_OWN_SETTINGS else ""
    if task and task not in (models := task_ids(step, complete)):
        raise InputError(f"--manifest is of the model {task!r}, which {step} does not have; it has {', '.join(models)}")
    return fingerprints.tracked_settings(step, complete, task), fingerprints.fingerprint(step, complete, task=task)


def check_as_planned(step: str, planned: dict[str, Any]) -> None:
    """Refuse to work with other code, or other files named by keys, than the plan was made with.

    Raises InputError that names them: the result would be recorded as what it is not.
    """
    planned_code = planned.get("code")
    names = [
        name
        for name, plugin in plugins.LOADED.items()
        if any(key.startswith(plugin.code_prefix) for key in planned_code or {})
    ]
    present_code = step_code(step, names)
    planned_code = present_code if planned_code is None else planned_code
    differing = sorted(
        name for name in present_code.keys() | planned_code.keys() if present_code.get(name) != planned_code.get(name)
    )
    for name, mark in planned.get("files", {}).items():
        path = Path(data_folder.to_folder(name.partition(" ")[2], planned.get("data", data_folder.DATA)))
        try:
            differing += [] if content_hash.hash_file(path) == mark else [str(path)]
        except OSError:
            differing.append(f"{path} (missing)")
    if differing:
        raise InputError(f"not what this run was planned with: {', '.join(differing)}; start the run again")


def expand_ranges(words: list[Path]) -> list[Path]:
    """Paths with every range spelled out: `x/{00000..00003}.json` stands for four (the padding is kept).

    Rules pass ranges, since thousands of paths are more than one command line takes.
    """
    out: list[Path] = []
    for word in words:
        match = RANGE.fullmatch(str(word))
        if match is None:
            out.append(word)
            continue
        head, first, last, tail = match.groups()
        out += [Path(f"{head}{number:0{len(first)}d}{tail}") for number in range(int(first), int(last) + 1)]
    return out


def parse_arguments(parser: argparse.ArgumentParser, argv: list[str] | None = None) -> argparse.Namespace:
    """The parsed command line, with ranges in lists of paths spelled out."""
    args = parser.parse_args(argv)
    for name, value in vars(args).items():
        if isinstance(value, list) and value and isinstance(value[0], Path):
            setattr(args, name, expand_ranges(value))
    return args


def arguments_for_shard(args: argparse.Namespace, shard: str) -> argparse.Namespace:
    """The arguments for another shard: what names the task's own shard names that one instead.

    That is a manifest, or a list of such and of one-task steps' (a list of all shards stays what it is).
    """
    own_manifest = args.manifest.name

    def swap_shard(value: Any) -> Any:
        if isinstance(value, list) and all(
            isinstance(path, Path) and path.name in (own_manifest, ONE_TASK_MANIFEST) for path in value
        ):
            return [swap_shard(path) for path in value]  # not a list of all shards, which has this one among them
        is_own = isinstance(value, Path) and value.name == own_manifest
        return value.with_name(f"{shard}.manifest.json") if is_own else value

    return argparse.Namespace(**{key: swap_shard(value) for key, value in vars(args).items()})


def prepare_log_files(args: argparse.Namespace) -> list[Path]:
    """The files of the log: --log, emptied, and for a step with checkpoints one beside these.

    That one outlives an interruption (Snakemake removes --log before it starts a task again), and --log begins with it.
    """
    lasting_log = None
    if hasattr(args, "checkpoints"):
        with contextlib.suppress(InputError, errors.ConfigError, ManifestError):
            lasting_log = checkpoint_folder(args) / LOG
    if args.log:
        args.log.parent.mkdir(parents=True, exist_ok=True)
        below = Path(os.path.abspath(args.log)).is_relative_to(Path(LOGS).absolute())  # noqa: PTH100 - `resolve` follows the link
        if below and args.log.is_symlink() and leaves_folder(str(args.log.parent), args.log.name):
            args.log.unlink()
        args.log.write_bytes(b"")
        with contextlib.suppress(OSError):  # a full disk: the step itself says so
            args.log.write_bytes(lasting_log.read_bytes() if lasting_log and lasting_log.exists() else b"")
    return [path for path in (args.log, lasting_log) if path]


def checkpoint_folder(args: argparse.Namespace) -> Path:
    """The folder of checkpoints of a training with these arguments and settings, and with what the files hold that they name.

    A folder `data` that moved names no other checkpoints.
    """
    # Not `verified_settings`, as `run_step` has it: the files may be large.
    section, mark = parse_settings(args.step, args.config, task_of(args.manifest))
    planned = json.loads(mark)
    place = json.loads(args.config).get("data") if args.config.lstrip().startswith("{") else None
    if place is not None:
        section = configuration.with_changed_paths(args.step, section, partial(data_folder.from_folder, data=place))
    return checkpoint_folders.training_folder(
        args.checkpoints, section, input_manifests(args), planned.get("files", {}), task_of(args.manifest)
    )


def is_done(args: argparse.Namespace, mark: str, renews: bool = True) -> bool:
    """Whether the task is done already: its manifest (or the copy, if Snakemake removed it) has the settings and code of the fingerprint
    `mark` (whatever differs above: chain/early_cutoff.py) and its files, and consumed what its inputs hold now.

    So a task that was cut off resumes after it, and work stops at the first step whose result is the same as before. If it `renews`, its
    manifest gets this fingerprint and the `sources` of today: what it did not consume of its inputs may come from a replaced source file.
    """
    try:
        manifest, manifests = Manifest.of_task(args.manifest), input_manifests(args)
        source_marks = args.own(args) if hasattr(args, "own") else {}  # of a step that reads more than manifests
        other_inputs = {SOURCES: source_marks} if source_marks else {}
        sources = early_cutoff.sources_if_same(manifest, args.manifest, mark, manifests, other_inputs)
        if sources is None:
            return False
        # A person may have removed it because of a damaged file.
        if not args.manifest.exists() and any(manifest.checksum_problems()):
            return False
        if renews:
            checkpoints = getattr(args, "checkpoints", early_cutoff.CHECKPOINTS)
            early_cutoff.renew_result(manifest, mark, sources, checkpoints)
    except ManifestError:
        return False
    return True


def input_manifests(args: argparse.Namespace) -> dict[str, Manifest]:
    """The manifests among the arguments that the task may read, by their keys."""
    return {
        manifest.key: manifest
        for manifest in (_read_input(path) for path in manifest_paths(args) if path != args.manifest)
    }


def manifest_paths(args: argparse.Namespace) -> list[Path]:
    """Every path of a manifest, alone or in a list, among the arguments."""
    values = (value if isinstance(value, list) else [value] for value in vars(args).values())
    return [
        path for value in values for path in value if isinstance(path, Path) and path.name.endswith("manifest.json")
    ]


@cache
def _read_input(path: Path) -> Manifest:
    """An input's manifest without checks; inputs do not change while a task works."""
    return Manifest.read_unchecked(path)


def run_and_write(args: argparse.Namespace, section: dict[str, Any], mark: str, body: Body) -> Manifest:
    """Do one shard (or the step's only task), and write its record and, last of all, its manifest.

    An old manifest goes first: it would speak for files that were replaced before this was killed.
    """
    Manifest.remove_with_copy(args.manifest)
    remove_links(args)
    manifest = Manifest(step=args.step, fingerprint=digest(mark))
    with record_inputs() as opened:
        files = body(args, section, manifest)
    manifest.inputs |= consumed_inputs(opened, input_manifests(args))
    manifest.sources = combine_sources([manifest.sources, *early_cutoff.sources_of(args.step, opened.values())])
    if not manifest.worked and record.read(args.manifest):
        record.update_fingerprint(args.manifest, mark)  # who worked, and on what machine, stays
    else:
        started = {"processes": args.processes} if "processes" in args else {}  # each has a GPU, where there are any
        record.write(args.manifest, mark, {**started, **manifest.run})
    return manifest.write(args.manifest, files)


def remove_links(args: argparse.Namespace) -> None:
    """Remove links among a task's files in a folder of results, which may come from somebody else: it writes no file elsewhere."""
    if args.manifest.absolute().parent.match(f"{RESULTS}/*/{folder_of(args.step)}"):
        for path in list(links_out(args.manifest)):
            console.log.warning("%s is a symbolic link out of its folder, %s: removed", path, os.path.realpath(path))
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # the task of another shard was first
                path.unlink()


def error_line(error: BaseException, args: argparse.Namespace) -> str:
    """An error that a person can mend, in one line."""
    if isinstance(error, OSError) and error.errno in run_folder.DISK_ERRORS:
        return run_folder.error_line(error, args.manifest.parent)
    return str(error)


def run_shard(args: argparse.Namespace, section: dict[str, Any], mark: str, body: Body) -> int:
    """Do one shard, or the step's only task, if it is not done already; WORKED or NOTHING_TO_DO. Raises shard_pool.ShardError."""
    try:
        if not args.always and is_done(args, mark):
            console.log.info(early_cutoff.NOTHING_TO_DO)
            return shard_pool.NOTHING_TO_DO
        return shard_pool.WORKED if run_and_write(args, section, mark, body).worked else shard_pool.NOTHING_TO_DO
    except MENDABLE as error:
        raise shard_pool.ShardError(error_line(error, args)) from error


def run_shards(args: argparse.Namespace, section: dict[str, Any], mark: str, body: Body) -> bool:
    """Do all shards of the task, `--at-once` of them at the same time; whether any had to be made. Raises InputError that names one."""
    own_shard = task_of(args.manifest)
    names = [*args.also, own_shard]
    if not args.also:
        try:
            return run_shard(args, section, mark, body) == shard_pool.WORKED
        except shard_pool.ShardError as error:
            raise InputError(str(error)) from error.__cause__
    board = console.board = console.Board(names)

    def run_named_shard(name: str) -> int:
        os.environ["RAYON_NUM_THREADS"] = str(max(1, args.at_once // len(names)))  # the tokenizers' threads
        console.set_log_prefix(f"{args.step} {name}")
        board.begin_shard(name)
        status = run_shard(args if name == own_shard else arguments_for_shard(args, name), section, mark, body)
        board.end_shard(status == shard_pool.WORKED)
        return status

    before = exit_signals.oom_kill_counts()
    try:
        outcomes = shard_pool.run_shards(names, args.at_once, run_named_shard, board.log_when_due)
    finally:
        console.board = None
    if failed := {name: outcome for name, outcome in outcomes.items() if not outcome.has_result}:
        raise InputError(failure_sentence(failed, len(names), args.step, exit_signals.lack_of_memory(before)))
    return any(outcome.status == shard_pool.WORKED for outcome in outcomes.values())


def failure_sentence(failed: dict[str, shard_pool.ShardExit], number: int, step: str, memory: str | None) -> str:
    """Why a task of `number` shards failed, in one sentence; where several shards failed, those before the last are logged."""
    reasons = []
    for name, outcome in sorted(failed.items()):
        if outcome.words:
            reasons.append(f"shard {name}: {outcome.words}")
        elif outcome.status < 0:
            reasons.append(f"shard {name} {exit_signals.signal_explanation(-outcome.status, step, memory)}")
        else:
            reasons.append(f"shard {name} ended with status {outcome.status}")
    for words in reasons[:-1]:
        console.log.error("error: %s", words)
    return (
        f"{reasons[-1]} ({len(failed)} of {number} shards failed; finished shards are kept: run the same command again)"
    )


def run_step(parser: argparse.ArgumentParser, body: Body, argv: list[str] | None = None) -> int:
    """Parse the command line, run `body(args, settings, manifest)`, write the manifest of the files it returns.

    `body` fills `manifest.counts` and `manifest.summary`. Returns the exit status: 0, or 1 after an error that the
    user can mend (InputError, ConfigError, ManifestError, OSError), printed as one line.
    """
    args = parse_arguments(parser, argv)
    if argv is None:  # a program of its own: others may want the memory back that they have now
        gc.freeze()  # what is imported stays: collections, the end and the processes of shards (core/shard_pool.py) leave it out
    try:
        console.set_up_logging(f"{args.step} {task_of(args.manifest)}".rstrip(), *prepare_log_files(args))
        if args.log and args.log.exists() and args.log.stat().st_size:
            console.log.info(console.RESTART_LINE)
        parent_watch.watch_driver()
        gpu_slots.take_for_step(args.step, getattr(args, "device", "auto"))
        section, mark = verified_settings(args.step, args.config, task_of(args.manifest))
        args.manifest.parent.mkdir(parents=True, exist_ok=True)
        with skip_pandas.without_pandas(args.step):
            task_costs.keep_work_benchmark(args.manifest, run_shards(args, section, mark, body))
    except MENDABLE as error:
        logging.getLogger("crawl2llm").error("error: %s", error_line(error, args))
        return 1
    log_counts(args)
    return 0


def log_counts(args: argparse.Namespace) -> None:
    """Log what the task read, kept and dropped, over all its shards."""
    total: dict[str, Any] = {}
    for name in [*args.also, task_of(args.manifest)]:
        counts = Manifest.read_unchecked(
            arguments_for_shard(args, name).manifest if args.also else args.manifest
        ).counts
        if "in" not in counts:
            return
        for key in ("in", "kept"):
            total[key] = total.get(key, 0) + counts[key]
        dropped = total.setdefault("dropped", Counter())
        dropped.update(counts["dropped"])
    drops = ", ".join(f"{reason} {n:,}" for reason, n in sorted(total["dropped"].items()) if n)
    drops_text = f"; dropped: {drops}" if drops else ""
    console.log.info("in %s, kept %s%s", f"{total['in']:,}", f"{total['kept']:,}", drops_text)


def report_errors(main: Callable[..., int]) -> Callable[..., int]:
    """The same `main` of a command for people, where an error that a person can mend is one line and the status 1."""

    @wraps(main)
    def main_reporting_errors(argv: list[str] | None = None) -> int:
        try:
            return main(argv)
        except BrokenPipeError:  # `| head` has seen enough
            raise
        except MENDABLE as error:
            return print_error(str(error))

    return main_reporting_errors


def print_findings(args: argparse.Namespace, findings: Any, lines: Callable[[], Iterable[str]]) -> int:
    """Print what a command for people found, with --json as that, else in lines; the status 0."""
    print_line(json.dumps(findings, indent=1, ensure_ascii=False) if args.json else "\n".join(lines()))
    return 0


def print_error(message: str) -> int:
    """Print an error as a step does, for programs without a manifest."""
    print_line(f"error: {message}", file=sys.stderr)
    return 1
