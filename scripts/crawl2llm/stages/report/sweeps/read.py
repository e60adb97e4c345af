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
from crawl2llm.formats.run_records import added, benchmark, dig

COMMON, CORPUS, TOKENS, TRAINING = "evaluate.common", "corpus.write", "tokenize.encode", "pretrain.train"
READ = (COMMON, CORPUS, TOKENS, TRAINING)
Row = dict[str, Any]


@dataclass
class Variant:
    """A variant's manifests by step and task, with what is not there: `missing`, its steps; `damaged`, why a file could not be read.

    owners: the variant whose folder holds each step of READ. makes: the path of the manifest of each model's training: variants with
    the same are one training.
    """

    name: str
    made: dict[str, dict[str, Manifest]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    makes: dict[str, str] = field(default_factory=dict)

    def training_of(self, model: str) -> str:
        """What names the training of a model: the path of its manifest; of a model that is not known, the variant."""
        return self.makes.get(model, self.name)

    def common(self, model: str) -> Manifest | None:
        """The evaluation of a model on the common held-out text."""
        return self.made.get(COMMON, {}).get(model)

    @property
    def training(self) -> Manifest | None:
        return self.made.get(TRAINING, {}).get("")

    @property
    def stopped(self) -> Row | None:
        """Where and why its training was ended before its last step by a sweep: `rung`, `step`, `why`; None for one that was not."""
        return self.training.summary.get("stopped") if self.training else None

    def counts(self) -> Row:
        """`documents`, `dropped` by reason, `tokens` and `bytes` of the training split; None for what is not there."""
        total: Row = {}
        for made in self.made.get(CORPUS, {}).values():
            if "in" in made.counts:
                add_counts(total, made.counts)
        tokens = added(made.summary.get("train") for made in self.made.get(TOKENS, {}).values())
        return {
            "in": total.get("in"),
            "documents": total.get("kept"),
            "dropped": total.get("dropped", {}),
            "tokens": dig(tokens, "tokens"),
            "bytes": dig(tokens, "bytes"),
        }


def read(project: Project, name: str) -> Variant:
    """A variant's manifests, as far as they are there."""
    config = project.variants[name]
    found = Variant(name)
    for model in model_registry.names(config):
        step, task = model_registry.task(config, model)
        if steps.is_used(step, config):
            found.makes[model] = project.manifest(name, step, task)
    for step in READ:
        if not steps.is_used(step, config):
            continue
        wanted, made = steps.ids(step, config), found.made.setdefault(step, {})
        for task in wanted:
            path = Path(project.manifest(name, step, task))
            found.owners[step] = path.parts[1]
            if not path.exists():
                continue
            try:
                one = Manifest.parse(path)
                if fault := next(iter(one.damage()), None):
                    raise ManifestError(fault)
                made[task] = one
            except ManifestError as error:
                found.damaged.append(str(error))
        if len(made) < len(wanted):
            found.missing.append(step if len(wanted) == 1 else f"{step} ({len(made):,} of {len(wanted):,})")
    return found


def consumed(variants: list[Variant]) -> dict[str, dict[str, str]]:
    """`inputs` of a manifest: what was read, as `variant/step task`, for the tasks of several variants have the same names."""
    out: dict[str, dict[str, str]] = {}
    for variant in variants:
        for made in variant.made.values():
            for one in made.values():
                mark = one.digest_of(ALL)
                assert mark is not None  # only a part may be missing
                out[f"{variant.name}/{one.key}"] = {ALL: mark}
    return out


@dataclass
class Costs:
    """What tasks took, by their benchmark files and records, each read once."""

    project: Project

    def __post_init__(self) -> None:
        self._of = cache(self._task)

    def of(self, variant: str) -> Row:
        """Seconds and GPU-hours of the tasks that a variant ran itself (`own`), of all that its results were made by (`all`), and of its
        pre-training; None where nothing was measured.
        """
        total = {"own": [0.0, 0.0], "all": [0.0, 0.0], "training": [0.0, 0.0]}
        measured, own = 0, 0
        config = self.project.variants[variant]
        for step in steps.used(config):
            for task in steps.tasks(step, config):
                contender = halving.parsed(task)[0] if step == steps.RUNG else ""
                if contender not in ("", variant):
                    continue  # the training of another variant, whose result lies in main too
                path = Path(self.project.manifest(variant, step, task))
                if (found := self._of(path)) is None:
                    continue
                measured += 1
                parts = ["all"]
                if variant in (path.parts[1], contender):
                    own += 1
                    parts.append("own")
                if step in (model_registry.BASE_STEP, steps.RUNG):
                    parts.append("training")
                for part in parts:
                    total[part][0] += found[0]
                    total[part][1] += found[0] * found[1] / 3600
        named = {name: {"seconds": seconds, "gpu_hours": hours} for name, (seconds, hours) in total.items()}
        return {**named, "tasks": measured, "tasks_own": own} if measured else {"tasks": 0, "tasks_own": 0}

    def _task(self, manifest: Path) -> tuple[float, int] | None:
        """(seconds, GPUs) of a task; None where it was not measured."""
        path = next(task_costs.counting([task_costs.benchmark(manifest)]))
        if not path.exists():
            return None
        rows = benchmark(path)
        if not rows or "s" not in rows[0]:
            return None
        said = record.read(manifest) if self.may_use_gpus(manifest) else {}
        gpus = int(said.get("processes", 1)) if said.get("device") == "cuda" else 0
        return rows[0]["s"], gpus

    @staticmethod
    def may_use_gpus(manifest: Path) -> bool:
        """Whether it is of a step that loads torch: the records of others, thousands of them, need not be read."""
        step = f"{manifest.parent.parent.name}.{manifest.parent.name}"
        return step in (*steps.MAKERS, steps.RUNG) or step.startswith(
            ("evaluate.", "quality.", "toxicity.", "synthesize.", "compress.")
        )
