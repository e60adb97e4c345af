"""Tasks that would come out the same are found before they are started: nothing is imported, submitted or queued to learn that.

The Snakemake that a person started looks at each task when all that it reads is there and up to date. It reads manifests and records, and
asks for the sizes of files. Where it is not sure, the task is started, and looks again by itself (chain/command_line.py).
"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

from crawl2llm.chain import command_line, early_cutoff
from crawl2llm.chain.project import Project
from crawl2llm.chain.steps import STEPS
from crawl2llm.core import task_costs
from crawl2llm.core.manifest import Manifest, ManifestError, digest, task_of
from crawl2llm.workflow.start import tasks_of


def manifest_options(words: list[str]) -> argparse.Namespace | None:
    """A program's options that name manifests, from its command line, each as a list; None if it has none to write."""
    lists: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            lists[name] = [value] if value else []
        elif name:
            lists[name].append(word)
    if len(lists.get("manifest", [])) != 1:
        return None
    own_manifest, also = Path(lists.pop("manifest")[0]), lists.pop("also", [])
    paths = {
        key: command_line.expand_ranges(list(map(Path, values)))
        for key, values in lists.items()
        if key != "config" and values and all(value.endswith("manifest.json") for value in values)
    }
    return argparse.Namespace(**paths, manifest=own_manifest, also=also)


class CutoffPlanner:
    """Looks at the tasks of one run. A manifest is parsed once for each time that it was written."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._parsed: dict[Path, tuple[tuple[int, ...], Manifest]] = {}

    def has_nothing_to_do(self, job: Any) -> bool:
        """Whether all results of one of Snakemake's jobs would come out the same; they are then marked as up to date."""
        job_tasks = tasks_of(job, self.project)
        if not job_tasks or job_tasks[1] in early_cutoff.ALWAYS_START:
            return False
        variant, step, tasks = job_tasks
        args = manifest_options(shlex.split(job.shellcmd))
        if args is None or [*args.also, task_of(args.manifest)] != [*tasks[1:], tasks[0]]:
            return False
        try:
            same = [
                self._unchanged_result(
                    variant, step, command_line.arguments_for_shard(args, task) if args.also else args
                )
                for task in tasks
            ]
        except (ManifestError, OSError, KeyError, ValueError):
            return False
        if None in same:
            return False
        for manifest, sources in filter(None, same):
            fingerprint = self.project.fingerprint(variant, step, tasks[0])
            early_cutoff.renew_result(manifest, fingerprint, sources, early_cutoff.CHECKPOINTS)
        task_costs.keep_work_benchmark(args.manifest, False)
        file = task_costs.benchmark_path(args.manifest)
        if not file.exists():  # Snakemake wants one
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return True

    def _unchanged_result(
        self, variant: str, step: str, args: argparse.Namespace
    ) -> tuple[Manifest, dict[str, str]] | None:
        """(manifest, its source files as they are now) of a result that would come out the same; None of another."""
        manifest, task = Manifest.read_unchecked(args.manifest), task_of(args.manifest)
        model = task if STEPS[step].per in command_line.WITH_OWN_SETTINGS else ""
        if manifest.file_problems():
            return None
        paths = [path for path in command_line.manifest_paths(args) if path != args.manifest]
        read = [self._read_input(path) for path in dict.fromkeys(paths)]
        manifests = {input_manifest.key: input_manifest for input_manifest in read}
        if len(manifests) != len(read):  # two of a name, of two variants
            return None
        other_inputs = {}
        if command_line.SOURCES in manifest.inputs:
            other_inputs[command_line.SOURCES] = {"files": self.project.contents[variant][task]}
        fingerprint = self.project.fingerprint(variant, step, model)
        sources = early_cutoff.sources_if_same(manifest, args.manifest, fingerprint, manifests, other_inputs)
        return None if sources is None else (manifest, sources)

    def _read_input(self, path: Path) -> Manifest:
        """The manifest of an input. Raises ManifestError for one that is not that of today's fingerprint and source files.

        The task that made it is over. A network file system may still show the one before: the file is opened, which asks the server.
        """
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            mark = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
            if path not in self._parsed or self._parsed[path][0] != mark:
                self._parsed[path] = mark, Manifest.read_unchecked(path)
        manifest = self._parsed[path][1]
        _, variant, stage, name = path.parts[:4]
        step = f"{stage}.{name}"
        model = task_of(path) if STEPS[step].per in command_line.WITH_OWN_SETTINGS else ""
        if manifest.fingerprint != digest(self.project.fingerprint(variant, step, model)):
            raise ManifestError(f"{path}: of another fingerprint")
        if not self.project.freshness[variant].has_current_sources(manifest):
            raise ManifestError(f"{path}: of other source files")
        return manifest
