"""Shortcuts in Snakemake's planning: what it works out again for every job and input file is worked out once. No plan changes.

With 1,000 shards a plan has 3,000 jobs and 18,000 input files. `take_shortcuts` is called while the workflow is read. Each shortcut uses
Snakemake's insides, and tests/workflow/test_shortcuts.py compares the plans with and without it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any

import snakemake.common
import snakemake.jobs
import snakemake.rules
from snakemake.dag import DAG
from snakemake.io import IOCache, _IOFile
from snakemake.jobs import Job


def cache_producers() -> None:
    """The job that makes a file is searched once, not for each job that reads the file.

    `known_producers` is Snakemake's own, for files that no job makes. A job is noted when everything above it is in the plan, so
    cycles are found as before.
    """
    search = DAG.update

    async def update(
        self: Any, jobs: Any, file: Any = None, visited: Any = None, known_producers: Any = None, **more: Any
    ) -> Any:
        producers = {} if known_producers is None else known_producers
        producer = await search(self, jobs, file=file, visited=visited, known_producers=producers, **more)
        if file is not None:
            producers[file] = [producer]
        return producer

    DAG.update = update


def cache_parameters() -> None:
    """Which parameters a function of the rules takes is asked once for each function."""
    once = cache(snakemake.common.get_function_params)
    snakemake.common.get_function_params = snakemake.rules.get_function_params = once


def use_rule_environments() -> None:
    """The conda environment of a job is that of its rule: the job's params, which no rule's environment uses, are not expanded for it."""

    def conda_env_spec(self: Any) -> Any:
        if self._conda_env_spec is None:
            self._conda_env_spec = self.rule.expand_conda_env(self.wildcards_dict)
        return self._conda_env_spec

    Job.conda_env_spec = property(conda_env_spec)


def skip_times() -> None:
    """Modification times are not collected before they are asked for: nothing compares them (snakemake_internals.py)."""

    async def mtime_inventory(self: Any, jobs: Any, n_workers: int = 8) -> None:
        pass

    IOCache.mtime_inventory = mtime_inventory


def keep_files() -> None:
    """A file of a rule that Snakemake makes again with nothing changed stays the object that it is."""
    make = snakemake.rules.IOFile

    def same_file(file: Any, rule: Any = None) -> Any:
        return file if type(file) is _IOFile and file.rule is rule else make(file, rule=rule)

    snakemake.rules.IOFile = same_file


def share_files() -> None:
    """A file that many jobs of a rule read is one object: 256 tasks that read the same 256 files have 256 objects, not 65,536."""
    apply = _IOFile.apply_wildcards
    cached: dict[tuple[Any, str], Any] = {}

    def apply_wildcards(self: Any, wildcards: Any) -> Any:
        if type(self._file) is not str or "{" in self._file:  # with flags or wildcards, or a function
            return apply(self, wildcards)
        key = self.rule, self._file
        if key not in cached:
            cached[key] = apply(self, wildcards)
        return cached[key]

    _IOFile.apply_wildcards = apply_wildcards


def read_storage_flags() -> None:
    """Whether a file lies in a storage that Snakemake fetches from is read from the file's flags, which say it."""
    _IOFile.is_storage = property(lambda self: bool(self.flags.get("storage_object")))


def print_plain_names() -> None:
    """The name of a file without flags is printed as it is: there is nothing to say of it."""
    whole = snakemake.jobs.fmt_iofile

    def plain_name(f: Any, as_input: bool = False, as_output: bool = False) -> str:
        return str(f) if type(f) is _IOFile and not f.flags else whole(f, as_input=as_input, as_output=as_output)

    snakemake.jobs.fmt_iofile = plain_name


def format_one_command() -> None:
    """A dry run that shows no commands formats that of one job for each rule, which finds mistakes in it, and not those of all."""
    formatted = Job.shellcmd.fget
    seen: set[str] = set()

    def shellcmd(self: Any) -> Any:
        workflow = self.dag.workflow
        if workflow.dryrun and not workflow.output_settings.printshellcmds and self.rule.name in seen:
            return None
        seen.add(self.rule.name)
        return formatted(self)

    Job.shellcmd = property(shellcmd)


ALL: tuple[Callable[[], None], ...] = (
    cache_producers,
    cache_parameters,
    use_rule_environments,
    skip_times,
    keep_files,
    share_files,
    read_storage_flags,
    print_plain_names,
    format_one_command,
)


TESTED_VERSION = "9.27.1"  # the version of the lock; with another one, plans are made without shortcuts


@cache
def take_shortcuts() -> None:
    """Take all shortcuts, once in a process."""
    if version("snakemake") != TESTED_VERSION:
        return
    gc.set_threshold(500_000)  # a plan makes a million objects and drops few
    for shortcut in ALL:
        shortcut()
