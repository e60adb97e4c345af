"""What a run's manifests and records say of one of its models: the facts of its card, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import BASE, BASE_STEP, UNTRAINED
from crawl2llm.core import record
from crawl2llm.core.console import quantity
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.run_records import Run, dig
from crawl2llm.training.model_loading import name

INGEST = "ingest.extract"
REPEATED = "ingest.check"  # drops records that the crawl holds more than once


@dataclass(frozen=True)
class Trained:
    """A model in the line of an export: its name, the step that made it, that step's manifest, and what it ran on."""

    name: str
    step: str
    manifest: Manifest
    record: dict[str, Any]

    @property
    def summary(self) -> dict[str, Any]:
        """What the step says of itself."""
        return self.manifest.summary

    @property
    def machine(self) -> str:
        """`1 node, 2 × Intel(R) Xeon(R) Processor`; "" where no record says so."""
        devices, nodes = self.record.get("devices"), self.record.get("nodes")
        if not isinstance(devices, dict):
            return ""
        named = ", ".join(f"{number:,} × {kind}" for kind, number in devices.items())
        return (f"{quantity(nodes, 'node')}, " if isinstance(nodes, int) else "") + named


@dataclass(frozen=True)
class Facts:
    """Everything that a card tells. models: from the one that is exported up to `base`. evaluations: the summaries of evaluate.model."""

    models: list[Trained]
    evaluations: dict[str, dict[str, Any]]
    run: Run
    told: dict[str, Any]  # of the config: sources with their licences, languages

    @property
    def pretrained(self) -> Trained:
        """The model `base`."""
        return next(model for model in self.models if model.name == BASE)

    @property
    def evaluation(self) -> dict[str, Any]:
        """That of the exported model; empty where there is none."""
        return self.evaluations.get(self.models[0].name, {})

    def funnel(self) -> Iterator[tuple[str, int, int, dict[str, int]]]:
        """(stage, documents in, kept, dropped by reason), in the order of the filters."""
        steps = [INGEST, REPEATED, *(f"{of}.select" for of in self.run.filters), "corpus.split"]
        for step in steps:
            counts = self.run.of_corpus() if step == "corpus.split" else self.run.counts(step)
            dropped = {why: number for why, number in (counts or {}).get("dropped", {}).items() if number}
            if counts and (dropped or step not in (REPEATED, "corpus.split")):
                yield (
                    step.partition(".")[0] if step.endswith(".select") else step,
                    counts["in"],
                    counts["kept"],
                    dropped,
                )

    def sources(self) -> Iterator[tuple[str, str, int, int]]:
        """(name, licence or `not stated`, documents in the corpus, bytes of text) of each source."""
        kept = self.run.summary("corpus.write", "by_source") or {}
        for source, of in self.told["sources"].items():
            here = kept.get(source, {})
            yield source, of["licence"] or "not stated", here.get("documents", 0), here.get("bytes", 0)

    def datasets(self) -> list[str]:
        """The data sets of the Hugging Face Hub among the sources."""
        return list(dict.fromkeys(one for of in self.told["sources"].values() for one in of["datasets"]))

    def tasks(self) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """For each task: (who, accuracy and the like) of the exported model, those before it, an untrained one, bigrams, unigrams."""
        found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for of, summary in self.evaluations.items():
            asked = {**(summary.get("items") or {}), **({"questions": q} if (q := summary.get("questions")) else {})}
            for task, numbers in asked.items():
                found.setdefault(task, []).append((of, numbers))
        for task, rows in found.items():
            beside = self.run.summary("evaluate.items", "tasks", task, "baselines") or {}
            rows += [(who, beside[who]) for who in ("bigram", "unigram") if who in beside]
        return found

    def bits(self) -> list[tuple[str, float]]:
        """(who, bits per byte of the held-out text): the models, and what counting and general compressors reach on it."""
        rows = [(of, dig(summary, "heldout_text", "bits_per_byte")) for of, summary in self.evaluations.items()]
        beside = self.run.summary("evaluate.items", "heldout_text", "bits_per_byte") or {}
        return [(who, value) for who, value in [*rows, *beside.items()] if value is not None]

    def fingerprints(self) -> list[tuple[str, str]]:
        """(step, fingerprint) of what the model was made by; of a step with many tasks that of the first."""
        steps = [(step, made[0].fingerprint) for step, made in self.run.manifests.items()]
        models = [(f"{model.step} {model.name}", model.manifest.fingerprint) for model in self.models[::-1]]
        return [*steps, *models]


def read(models: Iterable[Path], evaluations: Iterable[Path], recorded: Iterable[Path], told: dict[str, Any]) -> Facts:
    """The facts, from the manifests of the models (the exported one's parent first), of their evaluations and of the steps before.

    Raises ManifestError.
    """
    found = [
        Trained(name(path), made.step, made, record.read(path)) for path in models for made in [Manifest.read(path)]
    ]
    of = {path.name.removesuffix(".manifest.json"): dict(Manifest.read(path).summary) for path in evaluations}
    order = [*(model.name for model in found), UNTRAINED]
    return Facts(found, {one: of[one] for one in order if one in of}, Run.read(recorded), told)


def scratch(facts: Facts) -> bool:
    """Whether the weights of `base` began as random numbers."""
    return facts.pretrained.step == BASE_STEP and not facts.pretrained.summary.get("start_from")
