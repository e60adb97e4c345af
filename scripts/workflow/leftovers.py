"""Results of shards, bands, parts and models that the config no longer has: with fewer shards they would stay beside the new ones.

A reader of `corpus/write/train/*.parquet` would have every document twice. Checkpoints are never removed here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts.workflow import steps
from scripts.workflow.costs import WORK

TASK = re.compile(r"\.?(\d{5}|\d{3}|\d{2})\.")  # at the start of a file's name: a shard's, a part's or a band's
# Files by which a model is known, the manifest's copy and the record too: what was removed in part is removed to its end.
MODEL = re.compile(r"\.?([a-z][a-z0-9_-]*)\.(?:manifest\.json|manifest\.copy|run\.json)")


def folders(results: Path, step: str) -> tuple[Path, Path]:
    """The folders of a step's results and of its benchmark files, below a variant's results."""
    below = steps.folder_of(step)
    return results / below, results / "benchmarks" / below


def leftovers(results: Path, step: str, ids: Iterable[str], tasks: Iterable[str] | None = None) -> Iterator[Path]:
    """The files of one step below `results` (a variant's) that are of none of these shards (bands, parts).

    A one-task step has a file for each shard too. tasks: those that have benchmark files, where some write for several shards.
    """
    ids = set(ids)
    for folder, kept in zip(folders(results, step), (ids, ids if tasks is None else set(tasks)), strict=True):
        for path in folder.rglob("*"):
            found = TASK.match(path.name)
            if found and found.group(1) not in kept and path.is_file():
                yield path


def lone(results: Path, step: str) -> Iterator[Path]:
    """The files of the only task that a step had which has one for each shard today."""
    made, measured = folders(results, step)
    names = ("manifest.json", ".manifest.copy", "run.json")
    for path in [*(made / name for name in names), *(measured.with_suffix(end) for end in (".tsv", WORK))]:
        if path.is_file():
            yield path


def unknown_models(results: Path, step: str, models: Iterable[str]) -> list[str]:
    """The models below `results` (a variant's) that a step has made and that are not in `models`, by their manifests and records."""
    made, _ = folders(results, step)
    known = {found.group(1) for path in made.glob("*") if (found := MODEL.fullmatch(path.name))}
    return sorted(known - set(models))


def of_models(results: Path, step: str, models: Iterable[str]) -> Iterator[Path]:
    """The same of a step that has a task for each model: files named after a model that is not in `models`, and those in its folder.

    Only a model that has left a manifest or a record is known; any other file is somebody's own, and stays.
    """
    made, measured = folders(results, step)
    for model in unknown_models(results, step, models):
        paths = [
            path for folder in (made, measured) for path in [*folder.glob(f"{model}.*"), *folder.glob(f".{model}.*")]
        ]
        yield from (path for path in [*paths, *(made / model).rglob("*")] if path.is_file())


def of(variants: Mapping[str, dict[str, Any]]) -> list[Path]:
    """The files of all variants, complete configs by name, below `results` here that a run removes when it starts."""
    found: list[Path] = []
    for variant, config in variants.items():
        results = Path("results") / variant
        for step, facts in steps.STEPS.items():
            if facts.per == "model":
                found += of_models(results, step, steps.tasks(step, config))
            else:
                ids = steps.ids(step, config) if facts.per else steps.shards(config)
                found += leftovers(results, step, ids, steps.tasks(step, config) if facts.per else None)
                found += lone(results, step) if facts.per else []
    return found


def described(variants: Mapping[str, dict[str, Any]], found: list[Path]) -> str:
    """What `of` found, for a person, before it is removed: how much, and which models."""
    models = dict.fromkeys(
        name if variant == "main" else f"{name} of {variant}"
        for variant, config in variants.items()
        for step, facts in steps.STEPS.items()
        if facts.per == "model"
        for name in unknown_models(Path("results") / variant, step, steps.tasks(step, config))
    )
    total = sum(path.lstat().st_size for path in found)
    size = f"{total / 1e9:,.1f} GB" if total >= 1e9 else f"{total / 1e6:,.1f} MB"
    named = f"the model{'s' * (len(models) > 1)} {', '.join(models)}" if models else ""
    others = "shards, bands or parts" if any(TASK.match(path.name) for path in found) or not models else ""
    whose = " and of ".join(filter(None, (named, others)))
    files = f"{len(found):,} file{'s' * (len(found) > 1)} ({size})"
    return f"{files} below results/ of {whose}, which this config no longer has; checkpoints stay"


def remove(paths: Iterable[Path]) -> int:
    """Remove the files, manifests first, so that none is left without its data, and records last; returns their number.

    Folders that are empty then go too.
    """

    def order(path: Path) -> tuple[bool, bool, Path]:
        return (path.name.endswith("run.json"), not path.name.endswith(("manifest.json", "manifest.copy")), path)

    ordered = sorted(paths, key=order)
    for path in ordered:
        path.unlink(missing_ok=True)
    for folder in sorted({path.parent for path in ordered}, reverse=True):  # what is deeper first
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()
    return len(ordered)
