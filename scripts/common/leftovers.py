"""Results of shards and bands that the config no longer has: with fewer shards they would stay beside the new ones.

A reader of `corpus/write/train/*.parquet` would have every document twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

__tracked__ = False  # removes what no step reads: see scripts/common/fingerprint.py

TASK = re.compile(r"\.?(\d{5}|\d{2})\.")  # at the start of a file's name: a shard's or a band's


def leftovers(results: Path, step: str, tasks: Iterable[str]) -> Iterator[Path]:
    """The files of one step below `results` (a variant's) that are of no task in `tasks`; its benchmark files too.

    A one-task step has a file for each shard too: tasks are the shards then.
    """
    kept = set(tasks)
    for folder in (results / step.replace(".", "/"), results / "benchmarks" / step.replace(".", "/")):
        for path in folder.rglob("*"):
            found = TASK.match(path.name)
            if found and found.group(1) not in kept and path.is_file():
                yield path


def remove(paths: Iterable[Path]) -> int:
    """Remove the files, manifests first, so that none is left without its data; returns their number."""
    ordered = sorted(paths, key=lambda path: (not path.name.endswith(("manifest.json", "manifest.copy")), path))
    for path in ordered:
        path.unlink(missing_ok=True)
    return len(ordered)
