"""Results of models that the config no longer has: they are set aside below results/, and come back with the model.

A training may have taken weeks, and who comments a model out often wants it again. So the start of a run moves such results to
`results/<variant>/unused/<stage>/<step>/<model>.<digest of the fingerprint>/`, and moves those back that a model of the config would come
out as. `crawl2llm clean` removes them.
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crawl2llm.chain import early_cutoff, steps
from crawl2llm.chain.freshness import Freshness
from crawl2llm.chain.project import Project
from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest, ManifestError, canonical, digest
from crawl2llm.core.task_costs import benchmark
from crawl2llm.workflow.stale_results import amount, folders

FOLDER = "unused"
RESULTS = Path("results")
BENCHMARKS = "benchmarks"  # in a folder of results that are set aside: the benchmark files of the task
# Files by which a model is known, the manifest's copy and the record too: what was moved in part is moved to its end.
MODEL = re.compile(r"\.?([a-z][a-z0-9_-]*)\.(?:manifest\.json|manifest\.copy|run\.json)")
NAME = re.compile(r"([a-z][a-z0-9_-]*)\.([0-9a-f]{16}|unknown)(?:\.\d+)?")  # of a folder of results that are set aside


@dataclass(frozen=True)
class SetAside:
    """Results of a model's task in a folder of their own. variant: the one whose results they were."""

    folder: Path
    variant: str
    step: str
    model: str

    @property
    def manifest(self) -> Path:
        """The path of the manifest; a task that did not end has none."""
        return self.folder / f"{self.model}.manifest.json"


def set_aside(results: Path = RESULTS) -> list[SetAside]:
    """All results that are set aside, of all variants, sorted. No link is followed."""
    found = []
    for folder in sorted(results.glob(f"*/{FOLDER}/*/*/*/")):
        variant, _, stage, step, name = folder.relative_to(results).parts
        known = NAME.fullmatch(name)
        linked = any(path.is_symlink() for path in (folder, *list(folder.parents)[:4]))
        if known and f"{stage}.{step}" in steps.STEPS and not linked:
            found.append(SetAside(folder, variant, f"{stage}.{step}", known[1]))
    return found


def models_without(results: Path, step: str, models: Iterable[str]) -> list[str]:
    """The models below `results` (a variant's) that a step has made and that are not in `models`, by their manifests and records."""
    made, _ = folders(results, step)
    known = {match[1] for path in made.glob("*") if (match := MODEL.fullmatch(path.name))}
    return sorted(known - set(models))


def files_of(results: Path, step: str, model: str) -> Iterator[Path]:
    """The files of a model's task below `results` (a variant's): those named after it, and those in its folder."""
    made, measured = folders(results, step)
    for folder in (made, measured):
        yield from (
            path for glob in (f"{model}.*", f".{model}.*") for path in sorted(folder.glob(glob)) if path.is_file()
        )
    yield from (path for path in sorted((made / model).rglob("*")) if not path.is_dir() or path.is_symlink())


@dataclass(frozen=True)
class Move:
    """Files of one task, from one folder to another: `files` maps the present paths to those after it.

    model: as a person calls it, with its variant where that is not main.
    """

    variant: str
    step: str
    task: str
    files: Mapping[Path, Path]
    aside: Path  # the folder of the results while they are set aside

    @property
    def model(self) -> str:
        """The model, with its variant where that is not main."""
        return self.task if self.variant == "main" else f"{self.task} of {self.variant}"

    def make(self) -> None:
        """Move the files, the record and the manifest last: where this is cut off, the next start moves the rest."""

        def order(path: Path) -> tuple[bool, bool, Path]:
            return path.name.endswith("manifest.json"), path.name.endswith(("manifest.copy", "run.json")), path

        for path in sorted(self.files, key=order):
            self.files[path].parent.mkdir(parents=True, exist_ok=True)
            path.replace(self.files[path])
        folders = {folder for path in self.files for folder in (path.parent, *path.parent.parents)}
        for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def leaving(variants: Mapping[str, dict[str, Any]]) -> Iterator[Move]:
    """What a run sets aside when it starts: results of models that their variant no longer has. variants: complete configs by name."""
    for variant, config in variants.items():
        results = RESULTS / variant
        for step, facts in steps.STEPS.items():
            if facts.per == "model":
                for model in models_without(results, step, steps.tasks(step, config)):
                    yield _leaving(variant, step, model)


def _leaving(variant: str, step: str, model: str) -> Move:
    results = RESULTS / variant
    made, measured = folders(results, step)
    whole = results / FOLDER / steps.folder_of(step) / f"{model}.{mark_of(made / f'{model}.manifest.json')}"
    aside, number = whole, 1
    while any(path.exists() for path in (aside / f"{model}.manifest.json", aside / f"{model}.run.json")):
        number += 1  # of the same settings, and other input
        aside = whole.with_name(f"{whole.name}.{number}")
    files = {
        path: aside / BENCHMARKS / path.name if path.is_relative_to(measured) else aside / path.relative_to(made)
        for path in files_of(results, step, model)
    }
    return Move(variant, step, model, files, aside)


def mark_of(manifest: Path) -> str:
    """The digest of the fingerprint of a result, by its manifest, the manifest's copy or its record; `unknown` without these."""
    for path in (manifest, Manifest.copy_of(manifest)):
        with contextlib.suppress(ManifestError):
            if re.fullmatch("[0-9a-f]{16}", mark := Manifest.parse(path).fingerprint):
                return mark
    before = record.read(manifest).get("fingerprint")
    return digest(canonical(before)) if before else "unknown"


def coming_back(project: Project) -> list[Move]:
    """The results that are set aside and that models of the config would come out as: they have the settings, code and input of today.

    A model that has results keeps these.
    """
    there = set_aside()
    project = copy.copy(project)  # what is read of results before they move is no answer after it
    project.freshness = {name: replace(held, _read={}, _why={}) for name, held in project.freshness.items()}
    moves: dict[Path, Move] = {}  # by the manifest's path: variants share models
    number = -1
    while there and number < len(moves):  # a model may stand before the one that it is made from
        number = len(moves)
        for variant, config in project.variants.items():
            for step, facts in steps.STEPS.items():
                for task in steps.tasks(step, config) if facts.per == "model" and steps.is_used(step, config) else ():
                    _add_move(project, variant, step, task, there, moves)
    return list(moves.values())


def _add_move(
    project: Project, variant: str, step: str, task: str, there: Iterable[SetAside], moves: dict[Path, Move]
) -> None:
    """Add to `moves` that of the results of a task, if some of `there` are what it would make."""
    path = Path(project.manifest(variant, step, task))
    if path in moves or path.exists() or record.beside(path).exists():
        return
    above = steps.upstream(step, project.variants[variant], task)
    if not all(_is_as_today(project, variant, name, model, moves) for name, model in above):
        return  # it would be made from another model
    taken = {move.aside for move in moves.values()}
    of_task = (held for held in there if (held.step, held.model) == (step, task) and held.folder not in taken)
    if held := next((held for held in of_task if _is_of(project, variant, held, path, moves)), None):
        moves[path] = _back(held, path)


def _is_as_today(project: Project, variant: str, step: str, model: str, moves: Mapping[Path, Move]) -> bool:
    """Whether a model, or another result of a model's task, is there and would not be made again, or comes back too. True of other steps.

    What it is made from may be gone, as everywhere: if it is there, the same holds of it.
    """
    path = Path(project.manifest(variant, step, model))
    if path in moves or (step not in steps.MAKERS and steps.STEPS[step].per != "model"):
        return True
    try:
        held = Manifest.parse(path)
    except ManifestError:
        return False
    if not early_cutoff.is_made_by(held, path, project.fingerprint(variant, step, model)):
        return False
    if _after(project.freshness[variant], moves).other_input(held) is not None:
        return False
    above = steps.upstream(step, project.variants[variant], model)
    there = ((name, task) for name, task in above if Path(project.manifest(variant, name, task)).exists())
    return all(_is_as_today(project, variant, name, task, moves) for name, task in there)


def _back(held: SetAside, path: Path) -> Move:
    """The way of results to where the manifest at `path` belongs."""
    files = {}
    for file in sorted(held.folder.rglob("*")):
        if not file.is_dir() or file.is_symlink():
            name = file.relative_to(held.folder)
            measured = name.parts[0] == BENCHMARKS
            files[file] = benchmark(path).with_name(file.name) if measured else path.parent / name
    return Move(path.parts[1], held.step, held.model, files, held.folder)


def _is_of(project: Project, variant: str, held: SetAside, path: Path, moves: Mapping[Path, Move]) -> bool:
    """Whether results are what the task with the manifest at `path` would make of what is there or comes back.

    A part of them may be there already.
    """
    try:
        found = Manifest.parse(held.manifest)
    except ManifestError:
        return False
    for name, facts in found.files.items():
        places = (held.folder / name, path.parent / name)
        if not any(place.is_file() and place.stat().st_size == facts["bytes"] for place in places):
            return False
    fingerprint = project.fingerprint(variant, held.step, held.model)
    return (
        early_cutoff.is_made_by(found, held.manifest, fingerprint)
        and _after(project.freshness[variant], moves).other_input(found) is None
    )


def _after(freshness: Freshness, moves: Mapping[Path, Move]) -> Freshness:
    """What is asked of the results of a variant, with the manifests that come back as if they were there."""

    def moved(place: Callable[[str, str], Path]) -> Callable[[str, str], Path]:
        def manifest(step: str, task: str) -> Path:
            path = place(step, task)
            return moves[path].aside / path.name if path in moves else path

        return manifest

    assert freshness.main
    return replace(freshness, place=moved(freshness.place), main=moved(freshness.main))


def make(moves: Iterable[Move]) -> None:
    """Make all moves."""
    for move in moves:
        move.make()


def described(moves: Iterable[Move]) -> str:
    """How many files these are, of which models."""
    moves = list(moves)
    paths = [path for move in moves for path in move.files]
    names = list(dict.fromkeys(move.model for move in moves))
    models = f"the model {names[0]}" if len(names) == 1 else f"the models {', '.join(names)}"
    return f"{amount(paths)} of {models}"


LEAVES = "which this config no longer has, in results/*/unused/: they come back with the model, and `crawl2llm clean` removes them"
RETURNS = "from results/*/unused/: nothing of them is made again"
