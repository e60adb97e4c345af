"""A run at this moment: which steps are there, which are missing, damaged, outdated or of other settings, how far training is.

Reads the manifests that lie in a variant's results; a run that still works, or that failed, has some of them. A result is
outdated where its input was made again since. Under a config it is also known what is expected, and which results the
config or the code no longer match.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawl2llm.chain import filter_order, steps
from crawl2llm.chain.config import of_variant, validate
from crawl2llm.chain.fingerprint import fingerprint
from crawl2llm.chain.input_digests import Inputs
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.manifest import Manifest, ManifestError, digest, task_of
from crawl2llm.formats.run_records import Run, measured


@dataclass
class State:
    """`run`: what could be read. missing: {step, found, damaged, expected, log}; other: steps made under another config or code;
    outdated: step → what it was made from, in words, where that is not there any more."""

    run: Run
    missing: list[dict[str, Any]] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    outdated: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every step is there, sound, of this config, and made from what is there."""
        return not (self.missing or self.other or self.outdated or self.run.damaged)


def expected(config: dict[str, Any] | None, found: dict[str, list[Manifest]]) -> dict[str, int | None]:
    """Manifests of each step that the report reads; None: at least one (without a config the number is not known)."""
    if config is None:
        # Who has documents has the crawl, or needed none. Filters are those of the schema's default, and what is there.
        said = [made.summary["filters"] for made in found.get("corpus.split", []) if "filters" in made.summary]
        usual = steps.used(validate({"filters": said[0]} if said else {}))
        known = [
            step
            for step in steps.STEPS
            if step not in steps.PAGES
            and (step in usual or step in found)
            and (step != steps.CRAWL or steps.DOCUMENTS not in found)
        ]
        return dict.fromkeys(known)
    needed, queue = set[str](), [steps.LAST]
    while queue:
        new = set(steps.needs(queue.pop(), config)) - needed
        needed |= new
        queue += new
    return {step: len(steps.ids(step, config)) for step in steps.STEPS if step in needed}


def mark(step: str, config: dict[str, Any], memo: dict[str, str] | None = None, task: str = "") -> str:
    """The fingerprint's digest that a task's manifest has under a config."""
    return digest(fingerprint(step, config, memo, task))


Earlier = list[tuple[Path, dict[str, Any]]]  # (results, complete config) of variants


def earlier(results: Path, whole: dict[str, Any] | None) -> Earlier:
    """The variants whose results another one may read: main, and those before it in the config. whole: main's, with its variants."""
    if whole is None or results.name == "main":
        return []
    names = list(whole["variants"])
    before = names[: names.index(results.name)] if results.name in names else []
    return [(results.parent / name, of_variant(whole, name)) for name in ("main", *before)]


def folder_of(results: Path, step: str, config: dict[str, Any] | None, before: Earlier, task: str = "") -> Path:
    """The folder of a task's results: the variant's own or, where one before it has the same fingerprint and source files, that one's.

    Without a config it is main's where the variant has none of its own, and so it is where other names may be the same files.
    """
    own, main = (folder / steps.folder_of(step) for folder in (results, results.parent / "main"))
    if config is None:
        return own if own.is_dir() else main
    for folder, other in before:
        if not steps.is_used(step, other) or task not in steps.models(step, other):
            continue
        one, two = (side["ingest"]["extract"]["sources"] for side in (config, other))
        sourced = one == two or step == steps.CRAWL or not own.is_dir()
        if sourced and mark(step, config, task=task) == mark(step, other, task=task):
            return folder / steps.folder_of(step)
    return own


def paths_of(results: Path, step: str, config: dict[str, Any] | None, before: Earlier) -> Iterator[tuple[Path, str]]:
    """(path of a manifest, its model or "") of each of a step that is there; under a config those of its models alone."""
    if steps.STEPS[step].per in steps.OWN and config is not None:
        for task in steps.tasks(step, config):
            path = folder_of(results, step, config, before, task) / f"{task}.manifest.json"
            if path.exists():
                yield path, task
        return
    for path in sorted(folder_of(results, step, config, before).glob("*manifest.json")):
        if bool(task_of(path)) == bool(
            steps.STEPS[step].per
        ):  # else of an earlier version, where the step had other tasks
            yield path, task_of(path) if steps.STEPS[step].per in steps.OWN else ""


def outdated(run: Run, results: Path) -> dict[str, str]:
    """Steps of which a task was made from other input than what is there now, or from such a result, with words on it."""
    inputs, late, found = Inputs(results.parent), set[Path](), dict[str, str]()
    for step, made in run.manifests.items():  # in the order of the steps: inputs before what is made from them
        moved, through, number, seen = set[str](), set[str](), len(late), -1
        while seen != len(late):  # again, for a model may come before the one that it is made from
            seen = len(late)
            for manifest in made:
                for name, path, same in inputs.of(manifest):
                    if same is False or path in late:
                        (moved if same is False else through).add(name)
                        late.add(manifest.path or path)
        if number := len(late) - number:
            tasks = f"{number:,} of {len(made):,} tasks " if number < len(made) else ""
            why = (
                f"an earlier {names(moved)} than the one there now" if moved else f"what is outdated: {names(through)}"
            )
            found[step] = f"{tasks}made from {why}"
    return found


def names(found: set[str]) -> str:
    """Steps in their order, as people list them."""
    *most, last = [step for step in steps.STEPS if step in found]
    return f"{', '.join(most)} and {last}" if most else last


def look(results: Path, config: dict[str, Any] | None = None, whole: dict[str, Any] | None = None) -> State:
    """What is in a variant's `results`, with what is missing or damaged. config: the variant's; whole: main's."""
    run = Run(damaged={}, order=filter_order.filters(config) if config else None)
    state, memo, before = State(run), dict[str, str](), earlier(results, whole)
    assert run.damaged is not None
    for step in steps.used(config) if config else steps.STEPS:
        for path, task in paths_of(results, step, config, before) if step not in steps.PAGES else ():
            try:
                manifest = Manifest.read(path)
                if manifest.step != step:
                    raise ManifestError(f"{path}: this is a manifest of {manifest.step}")
                if missing := {"in", "kept", "dropped"} - set(manifest.counts or ("in", "kept", "dropped")):
                    raise ManifestError(f"{path}: counts lack {', '.join(sorted(missing))}")
            except ManifestError as error:
                if path.exists():  # else its step has just begun again
                    run.damaged[path] = str(error)
                continue
            run.manifests.setdefault(step, []).append(manifest)
            if config and manifest.fingerprint != mark(step, config, memo, task) and step not in state.other:
                state.other.append(step)
    for step, count in expected(config, run.manifests).items():
        there = len(run.of(step))
        if there < (count or 1):
            places = {
                folder_of(results, step, config, before, task)
                for task in (steps.models(step, config) if config else [""])
            }
            spoiled = sum(path.parent in places for path in run.damaged)
            state.missing.append(
                {
                    "step": step,
                    "found": there,
                    "damaged": spoiled,
                    "expected": count,
                    "log": log_of(results, step),
                }
            )
    state.outdated = outdated(run, results)
    for step, task in trainings(results, config):
        folder = folder_of(results, step, config, before, task)
        if run.task(step, task) is None and (beside := unfinished(folder, step, config, task)):
            run.training[step, task] = beside
    return state


def trainings(results: Path, config: dict[str, Any] | None) -> list[tuple[str, str]]:
    """(step, task) of every training; without a config of those that have begun in this folder."""
    if config:
        return [(step, task) for step in steps.MAKERS for task in steps.models(step, config)]
    begun = [manifest for _, manifest, _ in checkpoint_folders.announced(results.parent.parent / "checkpoints")]
    return [(step, task_of(path)) for step in steps.MAKERS for path in begun if ".".join(path.parts[-3:-1]) == step]


def log_of(results: Path, step: str) -> Path | None:
    """The log of a step that began: its newest, or None."""
    base = results.parent.parent / "logs" / results.name
    stage, name = step.split(".")
    logs = [path for path in [base / stage / f"{name}.log", *(base / stage / name).glob("*.log")] if path.is_file()]
    return max(logs, key=lambda path: path.stat().st_mtime, default=None)


def unfinished(folder: Path, step: str, config: dict[str, Any] | None, task: str = "") -> Path | None:
    """The folder beside whose checkpoints a training writes its losses; None where none began, or under another config.

    folder: of the step's results. task: the model, or "".
    """
    wanted, base = mark(step, config, task=task) if config else None, folder.parents[3]
    path = folder / f"{task}.manifest.json".removeprefix(".")
    found = [
        place
        for place, manifest, of in checkpoint_folders.announced(base / "checkpoints")
        if base / manifest == path and wanted in (None, of)
    ]
    written = {path: max(file.stat().st_mtime for file in measured(path)) for path in found if measured(path)}
    return max(written, key=lambda path: written[path], default=None)
