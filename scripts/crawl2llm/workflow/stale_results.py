"""Results of shards, bands and parts that the config no longer has: with fewer shards they would stay beside the new ones.

A reader of `corpus/write/train/*.parquet` would have every document twice. Results of models are set aside (unused.py).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from crawl2llm.chain import steps
from crawl2llm.core.console import format_quantity
from crawl2llm.core.task_costs import WORK_SUFFIX
from crawl2llm.training.estimate.parts import format_bytes

TASK = re.compile(r"\.?(\d{5}|\d{3}|\d{2})\.")  # at the start of a file's name: a shard's, a part's or a band's


def result_folders(results: Path, step: str) -> tuple[Path, Path]:
    """The folders of a step's results and of its benchmark files, below a variant's results."""
    below = steps.folder_of(step)
    return results / below, results / "benchmarks" / below


def leftover_files(results: Path, step: str, ids: Iterable[str], tasks: Iterable[str] | None = None) -> Iterator[Path]:
    """The files of one step below `results` (a variant's) that are of none of these shards (bands, parts).

    A one-task step has a file for each shard too. tasks: those that have benchmark files, where some write for several shards.
    """
    ids = set(ids)
    for folder, kept_ids in zip(
        result_folders(results, step), (ids, ids if tasks is None else set(tasks)), strict=True
    ):
        for path in folder.rglob("*"):
            match = TASK.match(path.name)
            if match and match.group(1) not in kept_ids and path.is_file():
                yield path


def one_task_files(results: Path, step: str) -> Iterator[Path]:
    """The files of the only task that a step had which has one for each shard today."""
    result_folder, benchmark_folder = result_folders(results, step)
    names = ("manifest.json", ".manifest.copy", "run.json")
    for path in [
        *(result_folder / name for name in names),
        *(benchmark_folder.with_suffix(end) for end in (".tsv", WORK_SUFFIX)),
    ]:
        if path.is_file():
            yield path


def stale_files(variants: Mapping[str, dict[str, Any]]) -> list[Path]:
    """The files of all variants, complete configs by name, below `results` here that a run removes when it starts."""
    files: list[Path] = []
    for variant, config in variants.items():
        results = Path("results") / variant
        for step, facts in steps.STEPS.items():
            if facts.per != "model":
                ids = steps.result_ids(step, config) if facts.per else steps.shards(config)
                files += leftover_files(results, step, ids, steps.task_ids(step, config) if facts.per else None)
                files += one_task_files(results, step) if facts.per else []
    return files


def amount_text(paths: list[Path]) -> str:
    """How many files these are, and their size."""
    return f"{format_quantity(len(paths), 'file')} ({format_bytes(sum(path.lstat().st_size for path in paths))})"


def stale_files_text(paths: list[Path]) -> str:
    """What `stale_files` found, for a person, before it is removed."""
    return f"{amount_text(paths)} below results/ of shards, bands or parts, which this config no longer has"


def removal_order(path: Path) -> tuple[bool, bool, Path]:
    """The key by which files are sorted to be removed: manifests first, so that no manifest outlives its data; records last."""
    return (path.name.endswith("run.json"), not path.name.endswith(("manifest.json", "manifest.copy")), path)


def remove_files(paths: Iterable[Path]) -> int:
    """Remove the files, manifests first and records last; returns their number. Folders that are empty then go too."""
    ordered = sorted(paths, key=removal_order)
    for path in ordered:
        path.unlink(missing_ok=True)
    for folder in sorted({path.parent for path in ordered}, reverse=True):  # what is deeper first
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()
    return len(ordered)
