"""What was made from which results, by the inputs that manifests name: of all variants, and of models that are set aside.

No folder and no step is listed here: a step that is new is followed as the others are. What a manifest consumed of another is known by
digests, so a result whose input was made again since is not taken for one of the new input; of such a result nobody knows what it read.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from crawl2llm.chain import model_registry, steps
from crawl2llm.chain.freshness import WITHOUT_INPUT
from crawl2llm.chain.model_registry import BASE
from crawl2llm.core import manifest_ranges
from crawl2llm.core.manifest import ALL, FILE_NAMES, SUMMARY_PART, Manifest, ManifestError, task_of
from crawl2llm.workflow import unused

CORPUS = "corpus.write"
TRAININGS = (*model_registry.MAKERS, steps.RUNG)


@dataclass(frozen=True)
class Result:
    """A task's result. is_aside: whether it is set aside, since the config no longer has its model."""

    manifest: Path
    variant: str
    step: str
    task: str
    is_aside: bool = False

    @property
    def config_manifest(self) -> Path:
        """Where its manifest lies while the config has its model."""
        if not self.is_aside:
            return self.manifest
        return unused.RESULTS / self.variant / steps.folder_of(self.step) / f"{self.task}.manifest.json"

    @property
    def name(self) -> str:
        """The task as a person calls it: `base`, `hot/sft`, `sft (set aside)`; of a step without models its step."""
        task_name = BASE if self.step == model_registry.BASE_STEP else self.task or self.step
        return f"{task_name if self.variant == 'main' else f'{self.variant}/{task_name}'}{' (set aside)' if self.is_aside else ''}"


@cache
def steps_after_corpus() -> frozenset[str]:
    """The steps that read the corpus, directly or by way of others."""
    steps_found: set[str] = set()
    for step, facts in steps.STEPS.items():  # in their order: what is read comes before who reads it
        if {CORPUS, *steps_found} & {*facts.needs, *facts.common}:
            steps_found.add(step)
    return frozenset(steps_found)


def enters_documents(step: str, parts: Iterable[str]) -> bool:
    """Whether a result holds something of a document, corpus or not, that is in what it consumed `parts` of.

    Models and exports learn from the corpus alone. Other steps after it read counts of the documents before it, and no text; pages show
    examples.
    """
    if step in (CORPUS, *TRAININGS, model_registry.EXPORT_STEP):
        return False  # whether a document is in the corpus is known by the document
    is_text = any(part not in (ALL, FILE_NAMES) and not part.startswith(SUMMARY_PART) for part in parts)
    return step not in steps_after_corpus() or step in steps.PAGES or is_text


def enters_heldout(step: str, _: Iterable[str]) -> bool:
    """Whether a result was made with a document of the held-out side that is in what it read: no training was."""
    return step not in TRAININGS


def enters_training(_: str, __: Iterable[str]) -> bool:
    """Whether a result was made with a document of the training side that is in what it read: each was."""
    return True


@dataclass
class Lineage:
    """The results below `results` in the working directory, of all variants, and what each was made from."""

    results: Path = unused.RESULTS
    manifests: dict[Result, Manifest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.results.glob("*/*/*/*manifest.json")):
            variant, stage, name, _ = path.relative_to(self.results).parts
            if f"{stage}.{name}" in steps.STEPS:
                self._add_result(Result(path, variant, f"{stage}.{name}", task_of(path)))
        for aside in unused.find_set_aside(self.results):
            self._add_result(Result(aside.manifest_path, aside.variant, aside.step, aside.model, is_aside=True))
        self.readers, self.lost_results = self._find_readers()

    def _add_result(self, result: Result) -> None:
        with contextlib.suppress(ManifestError):  # damaged, or a training that did not end
            self.manifests[result] = Manifest.read_unchecked(result.manifest)

    def _find_readers(self) -> tuple[dict[Path, list[tuple[Result, list[str]]]], set[Result]]:
        """(who read a manifest, and which parts of it; the results of which an input is not there any more as it was)."""
        results_by_name: dict[str, list[Result]] = defaultdict(list)
        for result in self.manifests:
            results_by_name[f"{result.step} {result.task}".rstrip()].append(result)
        digests: dict[tuple[Path, str], str | None] = {}
        readers: dict[Path, list[tuple[Result, list[str]]]] = defaultdict(list)
        lost = {
            result
            for result, manifest in self.manifests.items()
            if not manifest.inputs and not manifest.sources and result.step not in WITHOUT_INPUT
        }
        for result, manifest in self.manifests.items():
            for key, parts in manifest_ranges.unpack_ranges(manifest.inputs).items():
                if key == "sources" or not parts:  # source files; given to the task, and not read
                    continue
                sources = []
                for candidate in results_by_name.get(
                    key.rpartition("/")[2], []
                ):  # report.compare reads other variants: `hot/evaluate.common base`
                    for part in parts:
                        if (candidate.manifest, part) not in digests:
                            digests[candidate.manifest, part] = self.manifests[candidate].digest_of(part)
                    if all(digests[candidate.manifest, part] == mark for part, mark in parts.items()):
                        sources.append(candidate)
                for candidate in sources:
                    readers[candidate.manifest].append((result, list(parts)))
                if not sources:
                    lost.add(result)
        return readers, lost

    def made_from(self, starts: Iterable[Path], enters: Callable[[str, Iterable[str]], bool]) -> set[Result]:
        """All that was made from the results with these manifests, themselves among them. enters: (step, parts that it consumed) → whether
        that makes it one of these.
        """
        reached = {result for result in self.manifests if result.manifest in {*starts}}
        pending = list(reached)
        while pending:
            for result, parts in self.readers[pending.pop().manifest]:
                if result not in reached and enters(result.step, parts):
                    reached.add(result)
                    pending.append(result)
        return reached

    def unknown_results(self) -> set[Result]:
        """The results of which an input, or that of one above, is not there any more as it was read: what that held is not known."""
        return self.made_from([result.manifest for result in self.lost_results], enters_training)


def sort_results(results: Iterable[Result]) -> list[Result]:
    """Results in the order of the steps, main first."""
    order = list(steps.STEPS)

    def sort_key(result: Result) -> tuple[Any, ...]:
        return order.index(result.step), result.variant != "main", result.variant, result.is_aside, result.task

    return sorted(results, key=sort_key)


def steps_by_variant(results: Iterable[Result]) -> Iterator[tuple[str, list[str]]]:
    """(variant, steps in order) of results."""
    steps_of: dict[str, dict[str, None]] = {}
    for result in sort_results(results):
        steps_of.setdefault(result.variant, {})[result.step] = None
    return ((variant, list(names)) for variant, names in steps_of.items())
