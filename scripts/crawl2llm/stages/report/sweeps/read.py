"""What the page over all variants reads of each: manifests of evaluation, corpus, tokens and training, and what its tasks cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from crawl2llm.chain import halving, model_registry, steps
from crawl2llm.chain.project import Project
from crawl2llm.core import record, task_costs
from crawl2llm.core.manifest import ALL, Manifest, ManifestError
from crawl2llm.formats.documents import add_counts
from crawl2llm.formats.run_records import nested_value, read_benchmark, sum_summaries

COMMON, CORPUS, TOKENS, TRAINING = "evaluate.common", "corpus.write", "tokenize.encode", "pretrain.train"
PUBLIC = "evaluate.public"
READ_STEPS = (COMMON, PUBLIC, CORPUS, TOKENS, TRAINING)
Row = dict[str, Any]


@dataclass
class Variant:
    """A variant's manifests by step and task, with what is not there: `missing`, its steps; `damaged`, why a file could not be read.

    owners: the variant whose folder holds each step of READ_STEPS. training_manifests: the path of the manifest of each model's training:
    variants with the same are one training.
    """

    name: str
    manifests: dict[str, dict[str, Manifest]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    training_manifests: dict[str, str] = field(default_factory=dict)

    def training_of(self, model: str) -> str:
        """What names the training of a model: the path of its manifest; of a model that is not known, the variant."""
        return self.training_manifests.get(model, self.name)

    def common_evaluation(self, model: str) -> Manifest | None:
        """The evaluation of a model on the common held-out text."""
        return self.manifests.get(COMMON, {}).get(model)

    def public_evaluation(self, model: str) -> Manifest | None:
        """What a model reached on public tasks, if any are asked."""
        return self.manifests.get(PUBLIC, {}).get(model)

    @property
    def training(self) -> Manifest | None:
        return self.manifests.get(TRAINING, {}).get("")

    @property
    def early_stop(self) -> Row | None:
        """Where and why its training was ended before its last step by a sweep: `rung`, `step`, `why`; None for one that was not."""
        return self.training.summary.get("stopped") if self.training else None

    def corpus_counts(self) -> Row:
        """`documents`, `dropped` by reason, `tokens` and `bytes` of the training split; None for what is not there."""
        total: Row = {}
        for manifest in self.manifests.get(CORPUS, {}).values():
            if "in" in manifest.counts:
                add_counts(total, manifest.counts)
        tokens = sum_summaries(manifest.summary.get("train") for manifest in self.manifests.get(TOKENS, {}).values())
        return {
            "in": total.get("in"),
            "documents": total.get("kept"),
            "dropped": total.get("dropped", {}),
            "tokens": nested_value(tokens, "tokens"),
            "bytes": nested_value(tokens, "bytes"),
        }


def read_variant(project: Project, name: str) -> Variant:
    """A variant's manifests, as far as they are there."""
    config = project.variants[name]
    variant = Variant(name)
    for model in model_registry.language_models(config):
        step, task = model_registry.making_task(config, model)
        if steps.is_used(step, config):
            variant.training_manifests[model] = project.manifest_path(name, step, task)
    for step in READ_STEPS:
        if not steps.is_used(step, config):
            continue
        task_names, manifests = steps.result_ids(step, config), variant.manifests.setdefault(step, {})
        for task in task_names:
            path = Path(project.manifest_path(name, step, task))
            variant.owners[step] = path.parts[1]
            if not path.exists():
                continue
            try:
                manifest = Manifest.read_unchecked(path)
                if fault := next(iter(manifest.file_problems()), None):
                    raise ManifestError(fault)
                manifests[task] = manifest
            except ManifestError as error:
                variant.damaged.append(str(error))
        if len(manifests) < len(task_names):
            variant.missing.append(
                step if len(task_names) == 1 else f"{step} ({len(manifests):,} of {len(task_names):,})"
            )
    return variant


def input_digests(variants: list[Variant]) -> dict[str, dict[str, str]]:
    """`inputs` of a manifest: what was read, as `variant/step task`, for the tasks of several variants have the same names."""
    out: dict[str, dict[str, str]] = {}
    for variant in variants:
        for by_task in variant.manifests.values():
            for manifest in by_task.values():
                content_digest = manifest.digest_of(ALL)
                assert content_digest is not None  # only a part may be missing
                out[f"{variant.name}/{manifest.key}"] = {ALL: content_digest}
    return out


@dataclass
class Costs:
    """What tasks took, by their benchmark files and records, each read once."""

    project: Project

    def __post_init__(self) -> None:
        self._cached_cost = cache(self._task_cost)

    def variant_costs(self, variant: str) -> Row:
        """Seconds and GPU-hours of the tasks that a variant ran itself (`own`), of all that its results were made by (`all`), and of its
        pre-training; None if nothing was measured.
        """
        total = {"own": [0.0, 0.0], "all": [0.0, 0.0], "training": [0.0, 0.0]}
        measured, own_tasks = 0, 0
        config = self.project.variants[variant]
        for step in steps.used_steps(config):
            for task in steps.task_ids(step, config):
                contender = halving.parse_task(task)[0] if step == steps.RUNG else ""
                if contender not in ("", variant):
                    continue  # the training of another variant, whose result lies in main too
                path = Path(self.project.manifest_path(variant, step, task))
                if (cost := self._cached_cost(path)) is None:
                    continue
                measured += 1
                parts = ["all"]
                if variant in (path.parts[1], contender):
                    own_tasks += 1
                    parts.append("own")
                if step in (model_registry.BASE_STEP, steps.RUNG):
                    parts.append("training")
                for part in parts:
                    total[part][0] += cost[0]
                    total[part][1] += cost[0] * cost[1] / 3600
        rows = {name: {"seconds": seconds, "gpu_hours": hours} for name, (seconds, hours) in total.items()}
        return {**rows, "tasks": measured, "tasks_own": own_tasks} if measured else {"tasks": 0, "tasks_own": 0}

    def _task_cost(self, manifest: Path) -> tuple[float, int] | None:
        """(seconds, GPUs) of a task; None if it was not measured."""
        path = next(task_costs.work_benchmarks([task_costs.benchmark_path(manifest)]))
        if not path.exists():
            return None
        rows = read_benchmark(path)
        if not rows or "s" not in rows[0]:
            return None
        recorded_facts = record.read(manifest) if self.may_use_gpus(manifest) else {}
        gpus = int(recorded_facts.get("processes", 1)) if recorded_facts.get("device") == "cuda" else 0
        return rows[0]["s"], gpus

    @staticmethod
    def may_use_gpus(manifest: Path) -> bool:
        """Whether it is of a step that loads torch: the records of others, thousands of them, need not be read."""
        step = f"{manifest.parent.parent.name}.{manifest.parent.name}"
        return step in (*model_registry.MAKERS, steps.RUNG) or step.startswith(
            ("evaluate.", "quality.", "toxicity.", "synthesize.", "compress.")
        )
