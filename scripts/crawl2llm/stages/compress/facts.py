"""What a run's manifests and records say of one of its models: the facts of its card, as plain values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawl2llm.chain.model_registry import BASE_STEP, PUBLISHED_STEP, UNTRAINED
from crawl2llm.core import record
from crawl2llm.core.console import format_quantity
from crawl2llm.core.manifest import Manifest
from crawl2llm.core.settings import Settings, setting
from crawl2llm.formats.run_records import Run, nested_value
from crawl2llm.training.model_loading import model_name
from crawl2llm.training.published.folder import LENGTH_NAMES
from crawl2llm.training.published.model_files import CONFIG

INGEST = "ingest.extract"
REPEATED = "ingest.check"  # drops records that the crawl holds more than once


class CardSource(Settings):
    """What the config says of a source for a card (model_registry.card_facts)."""

    licence: str | None = setting(..., "Its licence; null: not stated.")
    datasets: list[str] = setting(..., "Its data sets, as the Hugging Face Hub calls them.")


@dataclass(frozen=True)
class TrainedModel:
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
        devices_text = ", ".join(f"{number:,} × {kind}" for kind, number in devices.items())
        return (f"{format_quantity(nodes, 'node')}, " if isinstance(nodes, int) else "") + devices_text


@dataclass(frozen=True)
class Facts:
    """Everything that a card tells. models: from the one that is exported up to its root. evaluations: the summaries of evaluate.model."""

    models: list[TrainedModel]
    evaluations: dict[str, dict[str, Any]]
    run: Run
    config_sources: Mapping[str, CardSource]  # by name

    @property
    def root_model(self) -> TrainedModel:
        """The model that all others are made from: `base`, or a published one."""
        return self.models[-1]

    @property
    def published_root(self) -> dict[str, Any]:
        """What a published root says of itself; empty where the root is `base`."""
        return self.root_model.summary if self.root_model.step == PUBLISHED_STEP else {}

    @property
    def evaluation(self) -> dict[str, Any]:
        """That of the exported model; empty if there is none."""
        return self.evaluations.get(self.models[0].name, {})

    @property
    def context(self) -> int | None:
        """That of the exported model in tokens, by its config.json: a training may have made it longer than its root's."""
        manifest, root = self.models[0].manifest, self.root_model.summary
        files = [manifest.file(name) for name in manifest.files if Path(name).name == CONFIG]
        config = json.loads(files[0].read_text(encoding="utf-8")) if files else {}
        tokens = next((int(config[name]) for name in LENGTH_NAMES if config.get(name)), None)
        return tokens or root.get("context") or root.get("shape", {}).get("context")

    def funnel(self) -> Iterator[tuple[str, int, int, dict[str, int]]]:
        """(stage, documents in, kept, dropped by reason), in the order of the filters."""
        steps = [INGEST, REPEATED, *(f"{of}.select" for of in self.run.filters), "corpus.split"]
        for step in steps:
            counts = self.run.corpus_counts() if step == "corpus.split" else self.run.counts(step)
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
        by_source = self.run.summary("corpus.write", "by_source") or {}
        for source, source_facts in self.config_sources.items():
            numbers = by_source.get(source, {})
            yield source, source_facts.licence or "not stated", numbers.get("documents", 0), numbers.get("bytes", 0)

    def datasets(self) -> list[str]:
        """The data sets of the Hugging Face Hub among the sources."""
        return list(dict.fromkeys(dataset for source in self.config_sources.values() for dataset in source.datasets))

    def task_results(self) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """For each task: (who, accuracy and the like) of the exported model, those before it, an untrained one, bigrams, unigrams."""
        results: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for model, summary in self.evaluations.items():
            scores = {**(summary.get("items") or {}), **({"questions": q} if (q := summary.get("questions")) else {})}
            for task, numbers in scores.items():
                results.setdefault(task, []).append((model, numbers))
        for task, rows in results.items():
            baselines = self.run.summary("evaluate.items", "tasks", task, "baselines") or {}
            rows += [(baseline, baselines[baseline]) for baseline in ("bigram", "unigram") if baseline in baselines]
        return results

    def bits_per_byte(self) -> list[tuple[str, float]]:
        """(who, bits per byte of the held-out text): the models, and what counting and general compressors reach on it."""
        rows = [
            (of, nested_value(summary, "heldout_text", "bits_per_byte")) for of, summary in self.evaluations.items()
        ]
        baselines = self.run.summary("evaluate.items", "heldout_text", "bits_per_byte") or {}
        return [(label, value) for label, value in [*rows, *baselines.items()] if value is not None]

    def fingerprints(self) -> list[tuple[str, str]]:
        """(step, fingerprint) of what the model was made by; of a step with many tasks that of the first."""
        steps = [(step, manifests[0].fingerprint) for step, manifests in self.run.manifests.items()]
        models = [(f"{model.step} {model.name}", model.manifest.fingerprint) for model in self.models[::-1]]
        return [*steps, *models]


def read_facts(
    models: Iterable[Path],
    evaluations: Iterable[Path],
    recorded: Iterable[Path],
    config_sources: Mapping[str, CardSource],
) -> Facts:
    """The facts, from the manifests of the models (the exported one's parent first), of their evaluations and of the steps before.

    Raises ManifestError.
    """
    trained = [
        TrainedModel(model_name(path), manifest.step, manifest, record.read(path))
        for path in models
        for manifest in [Manifest.read(path)]
    ]
    summary_by_name = {
        path.name.removesuffix(".manifest.json"): dict(Manifest.read(path).summary) for path in evaluations
    }
    order = [*(model.name for model in trained), UNTRAINED]
    return Facts(
        trained,
        {name: summary_by_name[name] for name in order if name in summary_by_name},
        Run.read(recorded),
        config_sources,
    )


def is_from_scratch(facts: Facts) -> bool:
    """Whether the weights of the root began as random numbers."""
    return facts.root_model.step == BASE_STEP and not facts.root_model.summary.get("start_from")
