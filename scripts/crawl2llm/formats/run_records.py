"""What a run left behind: manifests, metrics and benchmark files, read into plain values.

Everything is optional but the manifests given: a number that is not there is None, and the page shows `–` for it.
A damaged file is an error that names it, or, in a run that is not finished, is noted and left out.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.steps import STEPS
from crawl2llm.core.manifest import Manifest, ManifestError, task_of
from crawl2llm.core.task_costs import work_benchmarks
from crawl2llm.formats.documents import add_counts

UNREADABLE = (OSError, ValueError, KeyError, TypeError, csv.Error, pa.ArrowException)  # what a damaged file raises
NOTES = 20  # most notes of one step that the report shows
COLUMNS = {"s": 1, "cpu_time": 1, "max_rss": 2**20}  # of a benchmark file: seconds, seconds, MiB → bytes


def finite_number(value: Any) -> float | None:
    """A finite number, or None for anything else (text, NaN, a missing value)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def sum_summaries(parts: Iterable[Any]) -> Any:
    """The sum of the tasks' summaries: mappings key by key, numbers by addition, anything else from the first.

    >>> added([{"bytes": 1, "by": {"a": 2}}, {"bytes": 3}])
    {'bytes': 4, 'by': {'a': 2}}
    """
    total: Any = None
    for part in parts:
        if total is None or part is None:
            total = part if total is None else total
        elif isinstance(total, dict) and isinstance(part, dict):
            total = {
                key: sum_summaries([total.get(key), part.get(key)])
                for key in [*total, *(k for k in part if k not in total)]
            }
        elif isinstance(total, list) and isinstance(part, list) and len(total) == len(part):
            total = [sum_summaries(pair) for pair in zip(total, part, strict=True)]
        elif finite_number(total) is not None and finite_number(part) is not None:
            total = total + part
    return total


def nested_value(tree: Any, *keys: str) -> Any:
    """The value under nested keys, or None if one is missing."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


@dataclass
class Run:
    """The manifests of one variant's steps, by step, each list in task order.

    damaged: (file, what is wrong) of what could not be read, where the run may be unfinished; None if a damaged
    file is an error. training: the folder of the checkpoints of a training that is not finished, by step and task.
    """

    manifests: dict[str, list[Manifest]] = field(default_factory=dict)
    damaged: dict[Path, str] | None = None
    training: dict[tuple[str, str], Path] = field(default_factory=dict)
    order: list[str] | None = None  # the filters of the config, where it is known

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Run:
        """Read the manifests, whose own `step` says where they belong. Raises ManifestError."""
        manifests: dict[str, list[Manifest]] = {}
        for path in sorted(paths):
            manifest = Manifest.read(path)
            manifests.setdefault(manifest.step, []).append(manifest)
        return cls({step: manifests[step] for step in [*STEPS, *manifests] if step in manifests})

    @contextmanager
    def guard_reading(self, path: Path) -> Iterator[None]:
        """Read `path` inside: what a damaged file raises becomes ManifestError that names it, or is noted in `damaged`."""
        try:
            yield
        except UNREADABLE as error:
            if self.damaged is None:
                raise error if isinstance(error, ManifestError) else ManifestError(f"{path}: {error}") from error
            self.damaged.setdefault(path, str(error) or type(error).__name__)

    @property
    def filters(self) -> list[str]:
        """The filters that ran, in their order: as the corpus says, else that of their table."""
        names = [name for manifest in self.manifests_of("corpus.split") for name in manifest.summary.get("filters", [])]
        return names or self.order or [name for name in FILTERS if self.manifests_of(f"{name}.select")]

    def notes(self) -> list[dict[str, Any]]:
        """What steps say about themselves: `step`, `text`, `tasks` that say it; `summary["notes"]` of their manifests."""
        all_rows = []
        for step, manifests in self.manifests.items():
            tasks_by_text: dict[str, int] = {}
            for manifest in manifests:
                notes = manifest.summary.get("notes")
                for text in dict.fromkeys(map(str, notes)) if isinstance(notes, list) else ():
                    tasks_by_text[text] = tasks_by_text.get(text, 0) + 1
            rows = [{"step": step, "text": text, "tasks": tasks} for text, tasks in tasks_by_text.items()]
            more = {"step": step, "text": f"and {len(rows) - NOTES:,} more notes, in its manifests", "tasks": 1}
            all_rows += rows if len(rows) <= NOTES else [*rows[:NOTES], more]
        return all_rows

    def manifests_of(self, step: str) -> list[Manifest]:
        """The manifests of a step; empty if it did not run."""
        return self.manifests.get(step, [])

    def counts(self, step: str) -> dict[str, Any] | None:
        """`in`, `kept` and `dropped` by reason over the tasks of a step, or None if it counts nothing."""
        total: dict[str, Any] = {}
        for manifest in self.manifests_of(step):
            if "in" in manifest.counts:
                add_counts(total, manifest.counts)
        return total or None

    def corpus_counts(self) -> dict[str, Any] | None:
        """`counts` of corpus.split, with what corpus.heldout takes out of the training documents after it."""
        counts = self.counts("corpus.split")
        after = nested_value(self.counts("corpus.heldout"), "dropped")
        if not counts or not after:
            return counts
        return {**counts, "kept": counts["kept"] - sum(after.values()), "dropped": {**counts["dropped"], **after}}

    def summary(self, step: str, *keys: str) -> Any:
        """The summary of a step, added up over its tasks, or the value under `keys` in it; None if missing."""
        return nested_value(sum_summaries(dict(manifest.summary) for manifest in self.manifests_of(step)), *keys)

    def fact(self, step: str, *keys: str) -> Any:
        """A value that all tasks of a step say alike, such as a threshold: what the first says; None if missing."""
        return nested_value(next((dict(manifest.summary) for manifest in self.manifests_of(step)), None), *keys)

    def tasks(self, step: str) -> list[str]:
        """The tasks of a step that left a manifest."""
        return [task_of(manifest.path) for manifest in self.manifests_of(step) if manifest.path]

    def task(self, step: str, task: str) -> Manifest | None:
        """The manifest of one task of a step; of its only task, "", too."""
        return next((m for m in self.manifests_of(step) if m.path and task_of(m.path) == task), None)

    def files(self, step: str, ends: str) -> Iterator[Path]:
        """The files of a step whose listed name ends with `ends`, task by task."""
        for manifest in self.manifests_of(step):
            for name in manifest.files:
                if name.endswith(ends):
                    yield manifest.file(name)


def table_of(run: Run, step: str, shard: str) -> Path | None:
    """The table of one shard that a step wrote: a task by shard its own, a single task one for each; None if there is none."""
    name = f"{shard}.parquet"
    for manifest in run.manifests_of(step):
        if name in manifest.files and (not manifest.path or task_of(manifest.path) in ("", shard)):
            return manifest.file(name)
    return None


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON Lines file; none if there is no file. A line cut short by a kill is left out: the next attempt
    at a training appends to it.
    """
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(row, dict):
                yield row


def measurement_files(folder: Path) -> list[Path]:
    """The files of JSON Lines in which a training writes what it measures."""
    return [folder / name for name in ("losses.jsonl", "metrics.jsonl") if (folder / name).is_file()]


def training_metrics(run: Run, step: str, task: str = "") -> list[dict[str, Any]]:
    """What a training measured, one row an optimizer step, in order: its losses.jsonl and metrics.jsonl together.

    A training that is not finished has them beside its checkpoints. After a resumed run a file can hold a step twice;
    what was written last counts. A validation row may lack the tokens seen; they are put between those of the rows
    around it.
    """
    rows: dict[int, dict[str, Any]] = {}
    manifest, checkpoint_folder = run.task(step, task), run.training.get((step, task))
    folder = manifest.folder / task if manifest else checkpoint_folder
    for path in measurement_files(folder) if folder else []:
        with run.guard_reading(path):
            for row in read_json_lines(path):
                if finite_number(row.get("step")) is not None:
                    rows.setdefault(int(row["step"]), {}).update(row)
    ordered = [rows[place] for place in sorted(rows)]
    steps, tokens = finite_points(ordered, "step", "tokens")
    for row in ordered:
        if steps and finite_number(row.get("tokens")) is None:
            row["tokens"] = float(np.interp(row["step"], [0, *steps], [0, *tokens]))
    return ordered


def finite_points(rows: Iterable[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
    """The rows' (x, y) where both are finite numbers, as two lists of equal length."""
    pairs = [
        (row[x], row[y])
        for row in rows
        if finite_number(row.get(x)) is not None and finite_number(row.get(y)) is not None
    ]
    return [a for a, _ in pairs], [b for _, b in pairs]


def step_costs(run: Run) -> list[dict[str, Any]]:
    """Seconds, CPU-seconds and peak memory by step, from Snakemake's benchmark files if there are any.

    Each row: step, owner (the variant that ran it), tasks, seconds, longest, cpu_seconds (sums and maximum over the tasks' last runs; s)
    and memory (greatest peak resident set of a task and its children; bytes). A step read from another variant has its benchmarks there.
    """
    rows = []
    for step, manifests in run.manifests.items():
        stage, name = step.split(".")
        measured = []
        for manifest in manifests:
            task = task_of(manifest.path) if manifest.path else ""
            base = manifest.folder.parents[1] / "benchmarks" / stage
            tries = [base / name / f"{task}.tsv"] if task else [base / f"{name}.tsv"]
            tries += [] if task else sorted((base / name).glob("*.tsv"))
            for path in [path for path in work_benchmarks(tries) if path.is_file()][:1]:
                with run.guard_reading(path):
                    measured += read_benchmark(path)[:1]
        if measured:
            seconds, cpu, memory = ([row[key] for row in measured if key in row] for key in COLUMNS)
            rows.append(
                {
                    "step": step,
                    "owner": manifests[0].folder.parents[1].name,
                    "tasks": len(measured),
                    "seconds": sum(seconds),
                    "longest": max(seconds, default=None),
                    "cpu_seconds": sum(cpu) if cpu else None,
                    "memory": max(memory, default=None),
                }
            )
    return rows


def read_benchmark(path: Path) -> list[dict[str, float]]:
    """The rows of one benchmark file: `s`, `cpu_time` and `max_rss` (MiB) as seconds, seconds and bytes.

    A value that Snakemake could not measure (NA, -, or no memory at all: the task ended too soon) is left out.
    """
    rows = []
    with path.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle, delimiter="\t"):
            values = {}
            for key, scale in COLUMNS.items():
                try:
                    values[key] = float(row.get(key) or "nan") * scale
                except ValueError:
                    continue
            if not values.get("max_rss"):
                values.pop("max_rss", None)
            rows.append({key: value for key, value in values.items() if math.isfinite(value)})
    return rows
