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

from crawl2llm.chain import filter_order, model_registry, steps
from crawl2llm.chain.config import validate
from crawl2llm.chain.fingerprint import config_of_variant, fingerprint
from crawl2llm.chain.input_digests import Inputs
from crawl2llm.chain.step import DOCUMENTS
from crawl2llm.core import checkpoint_folders
from crawl2llm.core.manifest import Manifest, ManifestError, digest, task_of
from crawl2llm.formats.run_records import Run, measurement_files


@dataclass
class State:
    """`run`: what could be read. missing: {step, found, damaged, expected, log}; other: steps made under another config or code;
    outdated: step → what it was made from, in words, where that is not there any more."""

    run: Run
    missing: list[dict[str, Any]] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    outdated: dict[str, str] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every step is there, sound, of this config, and made from what is there."""
        return not (self.missing or self.other or self.outdated or self.run.damaged)


def expected_counts(config: dict[str, Any] | None, manifests: dict[str, list[Manifest]]) -> dict[str, int | None]:
    """Manifests of each step that the report reads; None: at least one (without a config the number is not known)."""
    if config is None:
        # Who has documents has the crawl, or needed none. Filters are those of the schema's default, and what is there.
        # Only a config says where those of plug-ins are.
        filter_lists = [
            [name for name in manifest.summary["filters"] if name in filter_order.FILTERS]
            for manifest in manifests.get("corpus.split", [])
            if "filters" in manifest.summary
        ]
        usual = steps.used_steps(validate({"filters": filter_lists[0]} if filter_lists else {}))
        known_steps = [
            step
            for step in steps.STEPS
            if step not in steps.PAGES
            and (step in usual or step in manifests)
            and (step != steps.CRAWL or DOCUMENTS not in manifests)
        ]
        return dict.fromkeys(known_steps)
    needed, queue = set[str](), [steps.REPORT_STEP]
    while queue:
        new = set(steps.needed_steps(queue.pop(), config)) - needed
        needed |= new
        queue += new
    return {step: len(steps.result_ids(step, config)) for step in steps.STEPS if step in needed}


def config_digest(step: str, config: dict[str, Any], memo: dict[str, str] | None = None, task: str = "") -> str:
    """The fingerprint's digest that a task's manifest has under a config."""
    return digest(fingerprint(step, config, memo, task))


VariantConfigs = list[tuple[Path, dict[str, Any]]]  # (results, complete config) of variants


def earlier_variants(results: Path, whole: dict[str, Any] | None) -> VariantConfigs:
    """The variants whose results another one may read: main, and those before it in the config. whole: main's, with its variants."""
    if whole is None or results.name == "main":
        return []
    names = list(whole["variants"])
    before = names[: names.index(results.name)] if results.name in names else []
    return [(results.parent / name, config_of_variant(whole, name)) for name in ("main", *before)]


def folder_of(results: Path, step: str, config: dict[str, Any] | None, before: VariantConfigs, task: str = "") -> Path:
    """The folder of a task's results: the variant's own or, if one before it has the same fingerprint and source files, that one's.

    Without a config it is main's where the variant has none of its own, and so it is where other names may be the same files.
    """
    own_folder, main = (folder / steps.folder_of(step) for folder in (results, results.parent / "main"))
    if config is None:
        return own_folder if own_folder.is_dir() else main
    for folder, other_config in before:
        if not steps.is_used(step, other_config) or task not in steps.task_models(step, other_config):
            continue
        own_sources, other_sources = (side["ingest"]["extract"]["sources"] for side in (config, other_config))
        sourced = own_sources == other_sources or step == steps.CRAWL or not own_folder.is_dir()
        if sourced and config_digest(step, config, task=task) == config_digest(step, other_config, task=task):
            return folder / steps.folder_of(step)
    return own_folder


def paths_of(
    results: Path, step: str, config: dict[str, Any] | None, before: VariantConfigs
) -> Iterator[tuple[Path, str]]:
    """(path of a manifest, its model or "") of each of a step that is there; under a config those of its models alone."""
    if steps.STEPS[step].per in steps.WITH_OWN_SETTINGS and config is not None:
        for task in steps.task_ids(step, config):
            path = folder_of(results, step, config, before, task) / f"{task}.manifest.json"
            if path.exists():
                yield path, task
        return
    for path in sorted(folder_of(results, step, config, before).glob("*manifest.json")):
        if bool(task_of(path)) == bool(
            steps.STEPS[step].per
        ):  # else of an earlier version, where the step had other tasks
            yield path, task_of(path) if steps.STEPS[step].per in steps.WITH_OWN_SETTINGS else ""


def outdated_steps(run: Run, results: Path) -> dict[str, str]:
    """Steps of which a task was made from other input than what is there now, or from such a result, with words on it."""
    inputs, late, reasons = Inputs(results.parent), set[Path](), dict[str, str]()
    for step, manifests in run.manifests.items():  # in the order of the steps: inputs before what is made from them
        moved, through, number, late_before = set[str](), set[str](), len(late), -1
        while late_before != len(late):  # again, for a model may come before the one that it is made from
            late_before = len(late)
            for manifest in manifests:
                for name, path, is_same in inputs.inputs_of(manifest):
                    if is_same is False or path in late:
                        (moved if is_same is False else through).add(name)
                        late.add(manifest.path or path)
        if number := len(late) - number:
            tasks = f"{number:,} of {len(manifests):,} tasks " if number < len(manifests) else ""
            why = (
                f"an earlier version of {join_steps(moved)}" if moved else f"outdated results of {join_steps(through)}"
            )
            reasons[step] = f"{tasks}made from {why}"
    return reasons


def join_steps(step_names: set[str]) -> str:
    """Steps in their order, as people list them."""
    *most, last = [step for step in steps.STEPS if step in step_names]
    return f"{', '.join(most)} and {last}" if most else last


def read_state(results: Path, config: dict[str, Any] | None = None, whole: dict[str, Any] | None = None) -> State:
    """What is in a variant's `results`, with what is missing or damaged. config: the variant's; whole: main's."""
    run = Run(damaged={}, order=filter_order.used_filters(config) if config else None)
    state, memo, before = State(run), dict[str, str](), earlier_variants(results, whole)
    assert run.damaged is not None
    for step in steps.used_steps(config) if config else steps.STEPS:
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
            if config and manifest.fingerprint != config_digest(step, config, memo, task) and step not in state.other:
                state.other.append(step)
    for step, count in expected_counts(config, run.manifests).items():
        present = len(run.manifests_of(step))
        if present < (count or 1):
            places = {
                folder_of(results, step, config, before, task)
                for task in (steps.task_models(step, config) if config else [""])
            }
            damaged_count = sum(path.parent in places for path in run.damaged)
            state.missing.append(
                {
                    "step": step,
                    "found": present,
                    "damaged": damaged_count,
                    "expected": count,
                    "log": newest_log(results, step),
                }
            )
    state.outdated = outdated_steps(run, results)
    for step, task in training_tasks(results, config):
        folder = folder_of(results, step, config, before, task)
        if run.task(step, task) is None and (losses_folder := unfinished_training(folder, step, config, task)):
            run.training[step, task] = losses_folder
    return state


def training_tasks(results: Path, config: dict[str, Any] | None) -> list[tuple[str, str]]:
    """(step, task) of every training; without a config of those that have begun in this folder."""
    if config:
        return [(step, task) for step in model_registry.MAKERS for task in steps.task_models(step, config)]
    started = [manifest for _, manifest, _ in checkpoint_folders.trainings_below(results.parent.parent / "checkpoints")]
    return [
        (step, task_of(path))
        for step in model_registry.MAKERS
        for path in started
        if ".".join(path.parts[-3:-1]) == step
    ]


def newest_log(results: Path, step: str) -> Path | None:
    """The log of a step that began: its newest, or None."""
    base = results.parent.parent / "logs" / results.name
    stage, name = step.split(".")
    logs = [path for path in [base / stage / f"{name}.log", *(base / stage / name).glob("*.log")] if path.is_file()]
    return max(logs, key=lambda path: path.stat().st_mtime, default=None)


def unfinished_training(folder: Path, step: str, config: dict[str, Any] | None, task: str = "") -> Path | None:
    """The folder beside whose checkpoints a training writes its losses; None if none began, or under another config.

    folder: of the step's results. task: the model, or "".
    """
    expected_digest, base = config_digest(step, config, task=task) if config else None, folder.parents[3]
    path = folder / f"{task}.manifest.json".removeprefix(".")
    places = [
        place
        for place, manifest, announced_digest in checkpoint_folders.trainings_below(base / "checkpoints")
        if base / manifest == path and expected_digest in (None, announced_digest)
    ]
    written_at = {
        path: max(file.stat().st_mtime for file in measurement_files(path))
        for path in places
        if measurement_files(path)
    }
    return max(written_at, key=lambda path: written_at[path], default=None)
