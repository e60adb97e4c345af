"""What could be removed of a run's folder: what the config does not use, each with its size and what it costs to have it again.

Nothing outside the folder is named, and nothing behind a link. A path that a key of the config names stays, and what is below it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from crawl2llm.chain import early_cutoff, fingerprint, sources, steps
from crawl2llm.chain.data_folder import DATA
from crawl2llm.chain.project import Project
from crawl2llm.commands.trace.attribution import INDEX_FOLDER as INDEXES
from crawl2llm.core import checkpoint_folders, code_snapshot, content_hash, pinned_names, task_costs
from crawl2llm.core.manifest import Manifest, ManifestError, digest, task_of
from crawl2llm.core.nested_dicts import flatten, lookup
from crawl2llm.stages.report.page import format_duration
from crawl2llm.training import model_check
from crawl2llm.training.estimate.parts import format_bytes
from crawl2llm.training.listing import model_of
from crawl2llm.workflow import unused

MODELS, CHECKPOINTS, RESULTS, CACHES = KINDS = ("models", "checkpoints", "results", "caches")
REPLACED_FOLDER = re.compile(
    r"[0-9a-f]{16}-[0-9a-f]{8}"
)  # a folder of checkpoints that another training took the place of
PLAN_CACHES = (content_hash.CACHE, fingerprint.CACHE, model_check.CACHE, Path(".snakemake/iocache"))
RESULTS_FOLDER, CHECKPOINTS_FOLDER = unused.RESULTS, early_cutoff.CHECKPOINTS
WHOLE, OLDER, NONE = "whole", "older", "none"  # how much of a folder of checkpoints could be removed


@dataclass(frozen=True)
class Item:
    """Files or folders that are removed together. cost_to_restore: what it costs to have them again."""

    kind: str
    name: str
    paths: tuple[Path, ...]
    cost_to_restore: str

    @property
    def bytes(self) -> int:
        """Bytes of all files; a link counts as itself."""
        return sum(file.lstat().st_size for path in self.paths for file in files_below(path))

    def format_line(self) -> str:
        """The entry for a person."""
        return f"{format_bytes(self.bytes):>9}  {self.name}: {self.cost_to_restore}"


def files_below(path: Path) -> Iterator[Path]:
    """The files at or below a path, links among them, which are not followed."""
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (Path(folder, name) for name in (*names, *linked))


def is_plain(path: Path) -> bool:
    """Whether a relative path stays in the working directory, and neither it nor a folder above it is a link."""
    if path.is_absolute() or ".." in path.parts or not path.parts:
        return False
    return not any(each.is_symlink() for each in (path, *path.parents))


def measured_seconds(paths: list[Path]) -> float:
    """The seconds that benchmark files say, those of starts that did the work."""
    return sum(
        task_costs.read_seconds(path) or 0.0
        for path in task_costs.work_benchmarks([path for path in paths if path.suffix == ".tsv"])
    )


def cost_in_words(paths: list[Path]) -> str:
    """What it costs to make results again, by their benchmark files."""
    seconds = measured_seconds(paths)
    return (
        f"to make it again takes {format_duration(seconds)} (measured)"
        if seconds
        else "to make it again takes a time that nobody measured"
    )


@dataclass
class NamedPaths:
    """The paths that the config names: patterns, split into their parts, with the key of each."""

    patterns: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    @classmethod
    def from_project(cls, project: Project) -> NamedPaths:
        """What any key of a step that a variant uses names, below the working directory."""
        named_paths = cls()
        for config in project.variants.values():
            used_sections = [(step, lookup(config, step)) for step in steps.used_steps(config)]
            for step, section in [*used_sections, ("models", config["models"]), ("data", {"": config["data"]})]:
                for key, value in flatten(section).items():
                    named_paths._add_patterns(f"{step}.{key}".rstrip("."), value)
            # What lists, task files and manifests that keys name lead to.
            for marked in (marked for _, marked in sources.input_files(config)):
                named_paths._add_patterns("ingest.extract.sources", sources.path_of(marked))
            for name, task in [(step, task) for step, _ in used_sections for task in steps.task_models(step, config)]:
                for key_and_path in fingerprint.task_file_hashes(name, config, task):
                    key, _, path = key_and_path.partition(" ")
                    named_paths._add_patterns(key, path.replace(DATA, config["data"], 1))
        return named_paths

    def _add_patterns(self, key: str, value: Any) -> None:
        if isinstance(value, str):
            # As it is written, and where links lead. A pattern is no path: pathlib would not keep it as it is.
            for absolute in (os.path.abspath, os.path.realpath):
                with contextlib.suppress(ValueError):  # it leads elsewhere, or is no path
                    root = Path(absolute(""))
                    if (
                        parts := Path(absolute(pinned_names.split_digest(value.removeprefix("@"))[0]))
                        .relative_to(root)
                        .parts
                    ):
                        self.patterns.append((parts, key))
        elif isinstance(value, dict):
            for name, inner in flatten(value).items():
                self._add_patterns(f"{key}.{name}", inner)
        elif isinstance(value, list):
            for inner in value:
                self._add_patterns(key, inner)

    def key_naming(self, path: Path) -> str | None:
        """The key that names a path, something below it or a folder above it; None if no key does."""
        return next((key for parts, key in self.patterns if _pattern_overlaps_path(parts, path.parts)), None)


def _pattern_overlaps_path(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Whether a path matches a pattern, or is above or below one that does."""
    for pattern_part, name in zip(pattern, path, strict=False):
        if pattern_part == "**":
            return True
        if not fnmatchcase(name, pattern_part):
            return False
    return True


def removable_items(project: Project, kinds: tuple[str, ...] = KINDS) -> tuple[list[Item], list[str]]:
    """(what could be removed, lines on what stays although nothing of the run reads it) in the working directory of a run."""
    named_paths, items, notes = NamedPaths.from_project(project), list[Item](), list[str]()
    for item in (*model_items(project), *checkpoint_items(project), *result_items(project), *cache_items()):
        if item.kind not in kinds:
            continue
        paths = []
        for path in item.paths:
            if not is_plain(path):
                notes.append(f"{path} stays: it is a link, or lies behind one")
            elif key := named_paths.key_naming(path):
                notes.append(f"{path} stays: {key} names it")
            else:
                paths.append(path)
        if paths:
            items.append(Item(item.kind, item.name, tuple(paths), item.cost_to_restore))
    for place in (RESULTS_FOLDER, CHECKPOINTS_FOLDER, Path(INDEXES).parent):
        linked = [path for path in (place, *(place.glob("*") if place.is_dir() else ())) if path.is_symlink()]
        notes += [f"{path} is a link, which is not followed: nothing there was looked at" for path in linked[:1]]
    return items, list(dict.fromkeys(notes))


def model_items(project: Project) -> Iterator[Item]:
    """Results of models that the config no longer has, set aside or not yet: an entry for each model."""
    parts_by_model: dict[tuple[str, str], list[tuple[str, tuple[Path, ...], list[Path]]]] = {}
    for aside in unused.find_set_aside():
        if aside.variant in project.variants:  # those of another go with it
            measured = sorted((aside.folder / unused.BENCHMARKS).glob("*.tsv"))
            parts_by_model.setdefault((aside.variant, aside.model), []).append((aside.step, (aside.folder,), measured))
    for move in unused.moves_aside(project.variants):
        parts_by_model.setdefault((move.variant, move.task), []).append(
            (move.step, tuple(move.files), list(move.files))
        )
    for (variant, model), parts in parts_by_model.items():
        name = model if variant == "main" else f"{model} of {variant}"
        step_names = ", ".join(dict.fromkeys(step for step, _, _ in parts))
        paths = tuple(path for _, part_paths, _ in parts for path in part_paths)
        cost = cost_in_words([path for _, _, measured in parts for path in measured])
        yield Item(MODELS, f"the model {name}, which the config no longer has ({step_names})", paths, cost)


def result_items(project: Project) -> Iterator[Item]:
    """Results of steps that the config does not use, and of variants that it no longer has: an entry for each variant."""
    used_folders = {
        project.step_folder(variant, step, task)
        for variant, config in project.variants.items()
        for step in steps.used_steps(config)
        for task in steps.task_models(step, config)
    }
    for place in folders_in(RESULTS_FOLDER):
        in_config, benchmarks = place.name in project.variants, place / unused.BENCHMARKS
        unused_steps, paths = list[str](), list[Path]()
        for step, facts in steps.STEPS.items():
            folder = place / steps.folder_of(step)
            # Models of a variant that the config has are entries of their own.
            if (
                str(folder) in used_folders
                or (in_config and facts.per == "model")
                or not any(folder.glob("*manifest.json"))
            ):
                continue
            unused_steps.append(step)
            benchmark_folder = benchmarks / steps.folder_of(step)
            benchmark_files = [
                *benchmark_folder.glob("*.tsv"),
                *benchmark_folder.parent.glob(f"{benchmark_folder.name}.*tsv"),
            ]
            paths += [folder, *(benchmark_files if in_config else [])]
        if not in_config:
            paths += [path for path in (place / unused.FOLDER, benchmarks) if unused_steps and path.is_dir()]
        if unused_steps:
            times = [path for path in paths if path.suffix == ".tsv"]
            if not in_config:
                times = sorted(benchmarks.rglob("*.tsv"))
            steps_text = f"steps of {place.name} that the config does not use"
            name = steps_text if in_config else f"the variant {place.name}, which the config no longer has"
            yield Item(RESULTS, f"{name} ({', '.join(unused_steps)})", tuple(paths), cost_in_words(times))


def folders_in(place: Path) -> list[Path]:
    """The folders in a folder, sorted; none behind a link."""
    if place.is_symlink() or not place.is_dir():
        return []
    return sorted(path for path in place.iterdir() if path.is_dir() and not path.is_symlink())


def checkpoint_items(project: Project) -> Iterator[Item]:
    """Checkpoints of trainings that ended: of those of the config the older ones, of others all. One that did not end keeps its own."""
    curves = {interval for config in project.variants.values() if (interval := config["evaluate"]["curve"]["every"])}
    announced_by_folder: dict[Path, list[tuple[Path, str]]] = {}
    for folder, manifest, mark in checkpoint_folders.trainings_below(CHECKPOINTS_FOLDER):
        announced_by_folder.setdefault(folder, []).append((manifest, mark))
    for folder in folders_in(CHECKPOINTS_FOLDER):
        if REPLACED_FOLDER.fullmatch(folder.name):
            yield Item(
                CHECKPOINTS,
                f"checkpoints of a training by other code, {folder}",
                (folder,),
                "another training took its place; only that code can continue it",
            )
            continue
        parts = {removable_share(project, manifest, mark) for manifest, mark in announced_by_folder.get(folder, [])}
        if not parts or NONE in parts:
            continue
        name = model_of(announced_by_folder[folder][0][0])
        saved = [path for path in folders_in(folder) if "step-" in path.name]
        whole = [path for path in saved if path.name.startswith("step-")]
        if OLDER in parts:
            old = tuple(
                path for path in saved if path not in whole[-1:] and not any(step_of(path) % n == 0 for n in curves)
            )
            cost = "to have them again needs the training again; the run does not need them, and the newest stays"
            yield Item(CHECKPOINTS, f"old checkpoints of {name}, whose training ended, in {folder}", old, cost)
        elif saved:
            cost = "a training that comes back begins at its first step"
            yield Item(
                CHECKPOINTS, f"checkpoints of {name} that the config has no training for, {folder}", (folder,), cost
            )


def step_of(path: Path) -> int:
    """The step of a checkpoint's folder, `step-000800`; 0 of another name."""
    number = path.name.removeprefix("step-")
    return int(number) if number.isdigit() else 0


def removable_share(project: Project, manifest: Path, mark: str) -> str:
    """How much of the checkpoints of a training could be removed. manifest: of its result. mark: the digest of its fingerprint."""
    parts = manifest.parts[-5:]
    if len(parts) < 5 or parts[0] != "results" or f"{parts[2]}.{parts[3]}" not in steps.STEPS:
        return NONE
    step, task, relative_manifest = f"{parts[2]}.{parts[3]}", task_of(manifest), Path(*parts)
    variant = next(
        (name for name in project.variants if has_task_at(project, name, step, task, relative_manifest)), None
    )
    try:
        result_mark = Manifest.read_unchecked(relative_manifest).fingerprint
    except ManifestError:  # not made, or set aside
        aside_manifests = [
            folder.manifest_path for folder in unused.find_set_aside() if (folder.step, folder.model) == (step, task)
        ]
        marks = {unused.mark_of(path) for path in aside_manifests if path.exists()}
        return WHOLE if mark in marks and variant is None else NONE
    if variant is None:
        return WHOLE if result_mark == mark else NONE
    if result_mark == mark:
        return OLDER
    own_task = task if steps.STEPS[step].per in steps.WITH_OWN_SETTINGS else ""
    return WHOLE if result_mark == digest(project.fingerprint(variant, step, own_task)) else NONE


def has_task_at(project: Project, variant: str, step: str, task: str, path: Path) -> bool:
    """Whether a variant has the task with the manifest at `path`."""
    config = project.variants[variant]
    used = steps.is_used(step, config) and task in steps.result_ids(step, config)
    return used and Path(project.manifest_path(variant, step, task)) == path


def cache_items() -> Iterator[Item]:
    """What a plan or a command worked out, and replies of endpoints that no step of the config asks."""
    if paths := tuple(path for path in PLAN_CACHES if path.exists()):
        yield Item(CACHES, "caches of plans", paths, "the next plan reads the files again that keys and sources name")
    if paths := tuple(sorted(code_snapshot.FOLDER.glob("*"))):
        yield Item(CACHES, "copies of code and config that runs worked from", paths, "a run makes its own")
    place = Path(INDEXES)
    for folder in folders_in(place.parent):
        if folder == place:
            yield Item(
                CACHES, f"indexes in {folder}", (folder,), "`crawl2llm who-wrote --index` reads the corpus again"
            )
        else:
            cost = "what is asked of an endpoint again takes time, and money if it is paid"
            yield Item(CACHES, f"replies of endpoints in {folder}", (folder,), cost)
