"""What the last run in a folder left behind, for an estimate of the next: manifests, records, and the benchmark files' seconds."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from crawl2llm.chain import steps
from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest, ManifestError, task_of
from crawl2llm.core.task_costs import WORK_SUFFIX, benchmark_path, read_seconds, work_benchmarks


class LastRun:
    """The last run in `folder`. Files that cannot be read count as not there; each is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifests = cache(self._read_manifests)
        self.task_seconds = cache(self._task_seconds)
        self.record = cache(self._read_record)

    def _read_manifests(self, variant: str, step: str) -> dict[str, Manifest]:
        """The manifests of a step by shard (band, model); a copy counts where Snakemake removed one before a task that was cut off."""
        place = self.folder / "results" / variant / steps.folder_of(step)
        paths = {task_of(path): path for path in place.glob("*manifest.json") if not path.name.startswith(".")}
        for copy in place.glob(".*manifest.copy"):
            paths.setdefault(copy.name[1:].removesuffix("manifest.copy").rstrip("."), copy)
        manifests = {}
        for task, path in sorted(paths.items()):
            if bool(task) != bool(steps.STEPS[step].per):  # of an earlier version, where the step had other tasks
                continue
            try:
                manifests[task] = Manifest.read_unchecked(path)
            except ManifestError:
                continue
            manifests[task].path = path.with_name(
                f"{task}.manifest.json".lstrip(".")
            )  # its record lies beside it, not beside a copy
        return manifests

    def _task_seconds(self, variant: str, step: str) -> dict[str, float]:
        """Seconds of each task of a step, by the benchmark file of the start that did the work."""
        place = benchmark_path(self.folder / "results" / variant / steps.folder_of(step) / "manifest.json")
        seconds_by_task = {}
        for path in work_benchmarks(
            [*sorted(place.with_suffix("").glob("*.tsv")), *([place] if place.exists() else [])]
        ):
            if (spent := read_seconds(path)) is not None:
                name = path.name.removesuffix(WORK_SUFFIX).removesuffix(".tsv")
                seconds_by_task["" if path.parent == place.parent else name] = spent
        return seconds_by_task

    def measured_variant(self, variant: str, step: str) -> str:
        """The variant that has been measured: itself, or `main` for one that is new."""
        return variant if self.task_seconds(variant, step) else "main"

    def _read_record(self, variant: str, step: str, task: str) -> dict[str, Any]:
        """The record of a task's last result; empty if there is none."""
        manifest = self.manifests(self.measured_variant(variant, step), step).get(task)
        return record.read(manifest.path) if manifest and manifest.path else {}

    def training_seconds(self, variant: str) -> float:
        """Seconds of pretrain.train's steps, validations and checkpoints alone, by its metrics.jsonl; 0 if it does not say."""
        path = self.folder / "results" / variant / steps.folder_of("pretrain.train") / "metrics.jsonl"
        try:
            return float(json.loads(path.read_bytes().splitlines()[-1])["seconds"])
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return 0.0

    def gpus_used(self, variant: str, step: str, task: str) -> int | None:
        """GPUs that made the last result of a task; None if its record does not say."""
        last_record = self.record(variant, step, task)
        if "device" not in last_record:
            return None
        return int(last_record.get("processes", 1)) if last_record["device"] == "cuda" else 0
