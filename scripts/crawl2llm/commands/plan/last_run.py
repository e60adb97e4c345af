"""What the last run in a folder left behind, for an estimate of the next: manifests, records, and the benchmark files' seconds."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from crawl2llm.chain import steps
from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest, ManifestError, task_of
from crawl2llm.core.task_costs import WORK, benchmark, counting, seconds


class Last:
    """The last run in `folder`. Files that cannot be read count as not there; each is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifests = cache(self._manifests)
        self.measured = cache(self._measured)
        self.record = cache(self._record)

    def _manifests(self, variant: str, step: str) -> dict[str, Manifest]:
        """The manifests of a step by shard (band, model); a copy counts where Snakemake removed one before a task that was cut off."""
        place = self.folder / "results" / variant / steps.folder_of(step)
        paths = {task_of(path): path for path in place.glob("*manifest.json") if not path.name.startswith(".")}
        for copy in place.glob(".*manifest.copy"):
            paths.setdefault(copy.name[1:].removesuffix("manifest.copy").rstrip("."), copy)
        found = {}
        for task, path in sorted(paths.items()):
            if bool(task) != bool(steps.STEPS[step].per):  # of an earlier version, where the step had other tasks
                continue
            try:
                found[task] = Manifest.parse(path)
            except ManifestError:
                continue
            found[task].path = path.with_name(
                f"{task}.manifest.json".lstrip(".")
            )  # its record lies beside it, not beside a copy
        return found

    def _measured(self, variant: str, step: str) -> dict[str, float]:
        """Seconds of each task of a step, by the benchmark file of the start that did the work."""
        place = benchmark(self.folder / "results" / variant / steps.folder_of(step) / "manifest.json")
        found = {}
        for path in counting([*sorted(place.with_suffix("").glob("*.tsv")), *([place] if place.exists() else [])]):
            if (spent := seconds(path)) is not None:
                name = path.name.removesuffix(WORK).removesuffix(".tsv")
                found["" if path.parent == place.parent else name] = spent
        return found

    def before(self, variant: str, step: str) -> str:
        """The variant that has been measured: itself, or `main` for one that is new."""
        return variant if self.measured(variant, step) else "main"

    def _record(self, variant: str, step: str, task: str) -> dict[str, Any]:
        """The record of a task's last result; empty where there is none."""
        made = self.manifests(self.before(variant, step), step).get(task)
        return record.read(made.path) if made and made.path else {}

    def training(self, variant: str) -> float:
        """Seconds of pretrain.train's steps, validations and checkpoints alone, by its metrics.jsonl; 0 where it does not say."""
        path = self.folder / "results" / variant / steps.folder_of("pretrain.train") / "metrics.jsonl"
        try:
            return float(json.loads(path.read_bytes().splitlines()[-1])["seconds"])
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return 0.0

    def gpus(self, variant: str, step: str, task: str) -> int | None:
        """GPUs that made the last result of a task; None where its record does not say."""
        found = self.record(variant, step, task)
        if "device" not in found:
            return None
        return int(found.get("processes", 1)) if found["device"] == "cuda" else 0
