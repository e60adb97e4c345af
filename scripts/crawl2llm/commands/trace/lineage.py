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

from crawl2llm.chain import steps
from crawl2llm.chain.freshness import WITHOUT_INPUT
from crawl2llm.chain.model_registry import BASE
from crawl2llm.core import manifest_ranges
from crawl2llm.core.manifest import ALL, NAMES, PART, Manifest, ManifestError, task_of
from crawl2llm.workflow import unused

CORPUS = "corpus.write"
TRAININGS = (*steps.MAKERS, steps.RUNG)


@dataclass(frozen=True)
class Result:
    """A task's result. aside: whether it is set aside, since the config no longer has its model."""

    manifest: Path
    variant: str
    step: str
    task: str
    aside: bool = False

    @property
    def place(self) -> Path:
        """Where its manifest lies while the config has its model."""
        if not self.aside:
            return self.manifest
        return unused.RESULTS / self.variant / steps.folder_of(self.step) / f"{self.task}.manifest.json"

    @property
    def name(self) -> str:
        """The task as a person calls it: `base`, `hot/sft`, `sft (set aside)`; of a step without models its step."""
        own = BASE if self.step == steps.BASE_STEP else self.task or self.step
        return f"{own if self.variant == 'main' else f'{self.variant}/{own}'}{' (set aside)' if self.aside else ''}"


@cache
def after_corpus() -> frozenset[str]:
    """The steps that read the corpus, directly or by way of others."""
    found: set[str] = set()
    for step, facts in steps.STEPS.items():  # in their order: what is read comes before who reads it
        if {CORPUS, *found} & {*facts.needs, *facts.common}:
            found.add(step)
    return frozenset(found)


def enters_documents(step: str, parts: Iterable[str]) -> bool:
    """Whether a result holds something of a document, corpus or not, that is in what it consumed `parts` of.

    Models and exports learn from the corpus alone. Other steps after it read counts of the documents before it, and no text; pages show
    examples.
    """
    if step in (CORPUS, *TRAININGS, steps.EXPORT_STEP):
        return False  # whether a document is in the corpus is known by the document
    is_text = any(part not in (ALL, NAMES) and not part.startswith(PART) for part in parts)
    return step not in after_corpus() or step in steps.PAGES or is_text


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
    made: dict[Result, Manifest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.results.glob("*/*/*/*manifest.json")):
            variant, stage, name, _ = path.relative_to(self.results).parts
            if f"{stage}.{name}" in steps.STEPS:
                self._add(Result(path, variant, f"{stage}.{name}", task_of(path)))
        for held in unused.set_aside(self.results):
            self._add(Result(held.manifest, held.variant, held.step, held.model, aside=True))
        self.readers, self.lost = self._edges()

    def _add(self, result: Result) -> None:
        with contextlib.suppress(ManifestError):  # damaged, or a training that did not end
            self.made[result] = Manifest.parse(result.manifest)

    def _edges(self) -> tuple[dict[Path, list[tuple[Result, list[str]]]], set[Result]]:
        """(who read a manifest, and which parts of it; the results of which an input is not there any more as it was)."""
        named: dict[str, list[Result]] = defaultdict(list)
        for result in self.made:
            named[f"{result.step} {result.task}".rstrip()].append(result)
        marks: dict[tuple[Path, str], str | None] = {}
        readers: dict[Path, list[tuple[Result, list[str]]]] = defaultdict(list)
        lost = {
            result
            for result, made in self.made.items()
            if not made.inputs and not made.sources and result.step not in WITHOUT_INPUT
        }
        for result, manifest in self.made.items():
            for key, parts in manifest_ranges.unpacked(manifest.inputs).items():
                if key == "sources" or not parts:  # source files; given to the task, and not read
                    continue
                same = []
                for other in named.get(
                    key.rpartition("/")[2], []
                ):  # report.compare reads other variants: `hot/evaluate.common base`
                    for part in parts:
                        if (other.manifest, part) not in marks:
                            marks[other.manifest, part] = self.made[other].digest_of(part)
                    if all(marks[other.manifest, part] == mark for part, mark in parts.items()):
                        same.append(other)
                for other in same:
                    readers[other.manifest].append((result, list(parts)))
                if not same:
                    lost.add(result)
        return readers, lost

    def downstream(self, starts: Iterable[Path], enters: Callable[[str, Iterable[str]], bool]) -> set[Result]:
        """All that was made from the results with these manifests, themselves among them. enters: (step, parts that it consumed) → whether
        that makes it one of these.
        """
        found = {result for result in self.made if result.manifest in {*starts}}
        left = list(found)
        while left:
            for result, parts in self.readers[left.pop().manifest]:
                if result not in found and enters(result.step, parts):
                    found.add(result)
                    left.append(result)
        return found

    def unknown(self) -> set[Result]:
        """The results of which an input, or that of one above, is not there any more as it was read: what that held is not known."""
        return self.downstream([result.manifest for result in self.lost], enters_training)


def ordered(found: Iterable[Result]) -> list[Result]:
    """Results in the order of the steps, main first."""
    order = list(steps.STEPS)
    return sorted(
        found, key=lambda one: (order.index(one.step), one.variant != "main", one.variant, one.aside, one.task)
    )


def steps_of(found: Iterable[Result]) -> Iterator[tuple[str, list[str]]]:
    """(variant, steps in order) of results."""
    by: dict[str, dict[str, None]] = {}
    for result in ordered(found):
        by.setdefault(result.variant, {})[result.step] = None
    return ((variant, list(names)) for variant, names in by.items())
