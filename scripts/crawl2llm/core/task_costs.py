"""What a task cost: Snakemake's benchmark file of it, kept where the task is started again and has nothing to do.

Snakemake writes the file again at the end of every start. The seconds of a start without work are not those of the result.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from crawl2llm.core.manifest import task_of

WORK_SUFFIX = ".work.tsv"  # the name's end of a benchmark file of the start that did the work


def benchmark_path(manifest: Path) -> Path:
    """Where Snakemake writes the benchmark file of the task with this manifest."""
    step = manifest.parent
    task = task_of(manifest)
    name = f"{step.name}/{task}.tsv" if task else f"{step.name}.tsv"
    return step.parents[1] / "benchmarks" / step.parent.name / name


def read_seconds(path: Path) -> float | None:
    """The seconds that a benchmark file says; None if it cannot be read, or Snakemake could not measure them."""
    try:
        return float(path.read_text(encoding="utf-8").splitlines()[1].split("\t")[0])
    except (OSError, ValueError, IndexError):
        return None


def keep_work_benchmark(manifest: Path, worked: bool) -> None:
    """To be called at the end of a task: its benchmark file counts from now on, or the one that is there stays the one that counts."""
    path = benchmark_path(manifest.absolute())
    work_path = path.with_suffix(WORK_SUFFIX)
    with contextlib.suppress(OSError):
        if worked:
            work_path.unlink(missing_ok=True)
        elif path.exists() and not work_path.exists():
            shutil.copyfile(path, work_path)


def work_benchmarks(paths: list[Path]) -> Iterator[Path]:
    """Of these benchmark files, those of starts that did the work: one for each task."""
    for path in paths:
        if not path.name.endswith(WORK_SUFFIX):
            work_path = path.with_suffix(WORK_SUFFIX)
            yield work_path if work_path.exists() else path
