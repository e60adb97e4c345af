"""A run as it stands: which steps are there, which are missing, damaged, outdated or of other settings, what training has come to.

Reads the manifests that lie in a variant's results; a run that still works, or that failed, has some of them. A result is
outdated where its input was made anew since. Under a config it is also known what is expected, and which results the
config or the code no longer match.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.common import steps
from scripts.common.fingerprint import fingerprint
from scripts.common.inputs import Inputs
from scripts.common.manifest import Manifest, ManifestError, digest, task_of
from scripts.report.records import Run, measured

LAST = "report.render"
TRAININGS = ("pretrain.train", "finetune.train")


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
    """Manifests of each step that the report reads; None: at least one (without a config nobody knows how many)."""
    if config is None:
        # Who has documents has the crawl, or needed none.
        known = [
            step for step in steps.STEPS if step != LAST and (step != "crawl.render" or "ingest.extract" not in found)
        ]
        return {step: len(steps.MODELS) if steps.STEPS[step].per == "model" else None for step in known}
    needed, queue = set[str](), [LAST]
    while queue:
        new = set(steps.needs(queue.pop(), config)) - needed
        needed |= new
        queue += new
    return {step: manifests(step, config) for step in steps.STEPS if step in needed}


def manifests(step: str, config: dict[str, Any]) -> int:
    """How many manifests a step writes: a task of several shards writes one for each."""
    return len(steps.shards(config) if steps.STEPS[step].per == "shard" else steps.tasks(step, config))


def marks(step: str, config: dict[str, Any], memo: dict[str, str]) -> dict[str, str]:
    """The fingerprint that a step's manifests have under a config, by task; key "" for all tasks of the same mark."""
    tasks = steps.MODELS if steps.STEPS[step].per == "model" else ("",)
    return {task: digest(fingerprint(step, config, memo, task)) for task in tasks}


def folder_of(results: Path, step: str, config: dict[str, Any] | None, whole: dict[str, Any] | None) -> Path:
    """The folder of a step's results: the variant's own or, where `main` has the same fingerprint, that of `main`.

    Without a config it is main's where the variant has none of its own.
    """
    own, main = (folder.joinpath(*step.split(".")) for folder in (results, results.parent / "main"))
    if config is None or whole is None:
        return own if own.is_dir() else main
    return main if marks(step, config, {}) == marks(step, whole, {}) else own


def outdated(run: Run, results: Path) -> dict[str, str]:
    """Steps of which a task was made from something else than what lies there now, or from such a result, with words on it."""
    inputs, late, found = Inputs(results.parent), set[Path](), dict[str, str]()
    for step, made in run.manifests.items():  # in the order of the steps: inputs before what is made from them
        moved, through, number = set[str](), set[str](), len(late)
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
    run = Run(damaged={})
    state, memo = State(run), dict[str, str]()
    assert run.damaged is not None
    for step in steps.STEPS:
        folder = folder_of(results, step, config, whole)
        wanted = marks(step, config, memo) if config else {}
        for path in sorted(folder.glob("*manifest.json")) if step != LAST else ():
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
            mark = wanted.get(task_of(path), wanted.get("", manifest.fingerprint))
            if manifest.fingerprint != mark and step not in state.other:
                state.other.append(step)
    for step, count in expected(config, run.manifests).items():
        there = len(run.of(step))
        if there < (count or 1):
            spoiled = sum(path.parent == folder_of(results, step, config, whole) for path in run.damaged)
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
    for step in TRAININGS:
        beside = None if run.of(step) else unfinished(results.parent.parent / "checkpoints", step, run, config)
        if beside:
            run.training[step] = beside
    return state


def log_of(results: Path, step: str) -> Path | None:
    """The log of a step that began: its newest, or None."""
    base = results.parent.parent / "logs" / results.name
    stage, name = step.split(".")
    logs = [path for path in [base / stage / f"{name}.log", *(base / stage / name).glob("*.log")] if path.is_file()]
    return max(logs, key=lambda path: path.stat().st_mtime, default=None)


def unfinished(checkpoints: Path, step: str, run: Run, config: dict[str, Any] | None) -> Path | None:
    """The folder beside whose checkpoints a training of `step` writes its losses; None where there is none.

    Under a config it bears the step's fingerprint. Without one it is the newest that no finished step bears; only
    pre-training is looked for then, since the two cannot be told apart.
    """
    if config is not None:
        found = [checkpoints / mark for mark in marks(step, config, {}).values()]
    else:
        finished = {manifest.fingerprint for manifests in run.manifests.values() for manifest in manifests}
        found = [path for path in checkpoints.glob("*") if path.name not in finished] * (step == TRAININGS[0])
    written = {path: max(file.stat().st_mtime for file in measured(path)) for path in found if measured(path)}
    return max(written, key=lambda path: written[path], default=None)
