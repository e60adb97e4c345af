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

from crawl2llm.chain import early_cutoff, model_registry, steps
from crawl2llm.chain.freshness import Freshness
from crawl2llm.chain.project import Project
from crawl2llm.core import record
from crawl2llm.core.manifest import Manifest, ManifestError, canonical_json, digest
from crawl2llm.core.task_costs import benchmark_path
from crawl2llm.workflow.stale_results import amount_text, result_folders

FOLDER = "unused"
RESULTS = Path("results")
BENCHMARKS = "benchmarks"  # in a folder of results that are set aside: the benchmark files of the task
# Files by which a model is known, the manifest's copy and the record too: what was moved in part is moved to its end.
MODEL_FILE = re.compile(r"\.?([a-z][a-z0-9_-]*)\.(?:manifest\.json|manifest\.copy|run\.json)")
FOLDER_NAME = re.compile(
    r"([a-z][a-z0-9_-]*)\.([0-9a-f]{16}|unknown)(?:\.\d+)?"
)  # of a folder of results that are set aside


@dataclass(frozen=True)
class RetiredResult:
    """Results of a model's task in a folder of their own. variant: the one whose results they were."""

    folder: Path
    variant: str
    step: str
    model: str

    @property
    def manifest_path(self) -> Path:
        """The path of the manifest; a task that did not end has none."""
        return self.folder / f"{self.model}.manifest.json"


def find_set_aside(results: Path = RESULTS) -> list[RetiredResult]:
    """All results that are set aside, of all variants, sorted. No link is followed."""
    aside = []
    for folder in sorted(results.glob(f"*/{FOLDER}/*/*/*/")):
        variant, _, stage, step, name = folder.relative_to(results).parts
        match = FOLDER_NAME.fullmatch(name)
        linked = any(path.is_symlink() for path in (folder, *list(folder.parents)[:4]))
        if match and f"{stage}.{step}" in steps.STEPS and not linked:
            aside.append(RetiredResult(folder, variant, f"{stage}.{step}", match[1]))
    return aside


def unlisted_models(results: Path, step: str, models: Iterable[str]) -> list[str]:
    """The models below `results` (a variant's) that a step has made and that are not in `models`, by their manifests and records."""
    result_folder, _ = result_folders(results, step)
    made_models = {match[1] for path in result_folder.glob("*") if (match := MODEL_FILE.fullmatch(path.name))}
    return sorted(made_models - set(models))


def files_of(results: Path, step: str, model: str) -> Iterator[Path]:
    """The files of a model's task below `results` (a variant's): those named after it, and those in its folder."""
    result_folder, benchmark_folder = result_folders(results, step)
    for folder in (result_folder, benchmark_folder):
        yield from (
            path for glob in (f"{model}.*", f".{model}.*") for path in sorted(folder.glob(glob)) if path.is_file()
        )
    yield from (path for path in sorted((result_folder / model).rglob("*")) if not path.is_dir() or path.is_symlink())


@dataclass(frozen=True)
class Move:
    """Files of one task, from one folder to another: `files` maps the present paths to those after it."""

    variant: str
    step: str
    task: str
    files: Mapping[Path, Path]
    aside: Path  # the folder of the results while they are set aside

    @property
    def model_label(self) -> str:
        """The model, with its variant where that is not main."""
        return self.task if self.variant == "main" else f"{self.task} of {self.variant}"

    def move_files(self) -> None:
        """Move the files, the record and the manifest last: where this is cut off, the next start moves the rest."""

        def move_order(path: Path) -> tuple[bool, bool, Path]:
            return path.name.endswith("manifest.json"), path.name.endswith(("manifest.copy", "run.json")), path

        for path in sorted(self.files, key=move_order):
            self.files[path].parent.mkdir(parents=True, exist_ok=True)
            path.replace(self.files[path])
        folders = {folder for path in self.files for folder in (path.parent, *path.parent.parents)}
        for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def moves_aside(variants: Mapping[str, dict[str, Any]]) -> Iterator[Move]:
    """What a run sets aside when it starts: results of models that their variant no longer has. variants: complete configs by name."""
    for variant, config in variants.items():
        results = RESULTS / variant
        for step, facts in steps.STEPS.items():
            if facts.per == "model":
                for model in unlisted_models(results, step, steps.task_ids(step, config)):
                    yield _move_aside(variant, step, model)


def _move_aside(variant: str, step: str, model: str) -> Move:
    results = RESULTS / variant
    result_folder, benchmark_folder = result_folders(results, step)
    whole = results / FOLDER / steps.folder_of(step) / f"{model}.{mark_of(result_folder / f'{model}.manifest.json')}"
    aside, number = whole, 1
    while any(path.exists() for path in (aside / f"{model}.manifest.json", aside / f"{model}.run.json")):
        number += 1  # of the same settings, and other input
        aside = whole.with_name(f"{whole.name}.{number}")
    files = {
        path: aside / BENCHMARKS / path.name
        if path.is_relative_to(benchmark_folder)
        else aside / path.relative_to(result_folder)
        for path in files_of(results, step, model)
    }
    return Move(variant, step, model, files, aside)


def mark_of(manifest: Path) -> str:
    """The digest of the fingerprint of a result, by its manifest, the manifest's copy or its record; `unknown` without these."""
    for path in (manifest, Manifest.copy_of(manifest)):
        with contextlib.suppress(ManifestError):
            if re.fullmatch("[0-9a-f]{16}", mark := Manifest.read_unchecked(path).fingerprint):
                return mark
    before = record.read(manifest).get("fingerprint")
    return digest(canonical_json(before)) if before else "unknown"


def moves_back(project: Project) -> list[Move]:
    """The results that are set aside and that models of the config would come out as: they have the settings, code and input of today.

    A model that has results keeps these.
    """
    aside = find_set_aside()
    project = copy.copy(project)  # what is read of results before they move is no answer after it
    project.freshness = {
        name: replace(freshness, _manifests={}, _stale_reasons={}) for name, freshness in project.freshness.items()
    }
    moves: dict[Path, Move] = {}  # by the manifest's path: variants share models
    number = -1
    while aside and number < len(moves):  # a model may stand before the one that it is made from
        number = len(moves)
        for variant, config in project.variants.items():
            for step, facts in steps.STEPS.items():
                for task in (
                    steps.task_ids(step, config) if facts.per == "model" and steps.is_used(step, config) else ()
                ):
                    _add_move(project, variant, step, task, aside, moves)
    return list(moves.values())


def _add_move(
    project: Project, variant: str, step: str, task: str, aside: Iterable[RetiredResult], moves: dict[Path, Move]
) -> None:
    """Add to `moves` that of the results of a task, if some of `aside` are what it would make."""
    path = Path(project.manifest_path(variant, step, task))
    if path in moves or path.exists() or record.path_of(path).exists():
        return
    above = steps.upstream_tasks(step, project.variants[variant], task)
    if not all(_is_as_today(project, variant, name, model, moves) for name, model in above):
        return  # it would be made from another model
    used_folders = {move.aside for move in moves.values()}
    of_task = (result for result in aside if (result.step, result.model) == (step, task))
    unclaimed = (result for result in of_task if result.folder not in used_folders)
    if result := next((result for result in unclaimed if _is_result_of(project, variant, result, path, moves)), None):
        moves[path] = _move_back(result, path)


def _is_as_today(project: Project, variant: str, step: str, model: str, moves: Mapping[Path, Move]) -> bool:
    """Whether a model, or another result of a model's task, is there and would not be made again, or comes back too. True of other steps.

    What it is made from may be gone, as everywhere: if it is there, the same holds of it.
    """
    path = Path(project.manifest_path(variant, step, model))
    if path in moves or (step not in model_registry.MAKERS and steps.STEPS[step].per != "model"):
        return True
    try:
        manifest = Manifest.read_unchecked(path)
    except ManifestError:
        return False
    if not early_cutoff.is_made_by(manifest, path, project.fingerprint(variant, step, model)):
        return False
    if _freshness_after_moves(project.freshness[variant], moves).why_other_input(manifest) is not None:
        return False
    above = steps.upstream_tasks(step, project.variants[variant], model)
    existing = ((name, task) for name, task in above if Path(project.manifest_path(variant, name, task)).exists())
    return all(_is_as_today(project, variant, name, task, moves) for name, task in existing)


def _move_back(aside: RetiredResult, path: Path) -> Move:
    """The way of results to where the manifest at `path` belongs."""
    files = {}
    for file in sorted(aside.folder.rglob("*")):
        if not file.is_dir() or file.is_symlink():
            name = file.relative_to(aside.folder)
            measured = name.parts[0] == BENCHMARKS
            files[file] = benchmark_path(path).with_name(file.name) if measured else path.parent / name
    return Move(path.parts[1], aside.step, aside.model, files, aside.folder)


def _is_result_of(project: Project, variant: str, aside: RetiredResult, path: Path, moves: Mapping[Path, Move]) -> bool:
    """Whether results are what the task with the manifest at `path` would make of what is there or comes back.

    A part of them may be there already.
    """
    try:
        manifest = Manifest.read_unchecked(aside.manifest_path)
    except ManifestError:
        return False
    for name, facts in manifest.files.items():
        places = (aside.folder / name, path.parent / name)
        if not any(place.is_file() and place.stat().st_size == facts["bytes"] for place in places):
            return False
    fingerprint = project.fingerprint(variant, aside.step, aside.model)
    return (
        early_cutoff.is_made_by(manifest, aside.manifest_path, fingerprint)
        and _freshness_after_moves(project.freshness[variant], moves).why_other_input(manifest) is None
    )


def _freshness_after_moves(freshness: Freshness, moves: Mapping[Path, Move]) -> Freshness:
    """What is asked of the results of a variant, with the manifests that come back as if they were there."""

    def after_moves(place: Callable[[str, str], Path]) -> Callable[[str, str], Path]:
        def manifest_path(step: str, task: str) -> Path:
            path = place(step, task)
            return moves[path].aside / path.name if path in moves else path

        return manifest_path

    assert freshness.main
    return replace(freshness, place=after_moves(freshness.place), main=after_moves(freshness.main))


def make_moves(moves: Iterable[Move]) -> None:
    """Make all moves."""
    for move in moves:
        move.move_files()


def moves_text(moves: Iterable[Move]) -> str:
    """How many files these are, of which models."""
    moves = list(moves)
    paths = [path for move in moves for path in move.files]
    names = list(dict.fromkeys(move.model_label for move in moves))
    models = f"the model {names[0]}" if len(names) == 1 else f"the models {', '.join(names)}"
    return f"{amount_text(paths)} of {models}"


LEAVING_TEXT = "which this config no longer has, in results/*/unused/: they come back with the model, and `crawl2llm clean` removes them"
RETURN_TEXT = "from results/*/unused/: nothing of them is made again"
