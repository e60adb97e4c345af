"""The steps of the workflow in order, what each needs, and how many tasks it has.

The rules name the same edges as inputs; `tests/workflow/test_steps.py` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """One step: the steps it reads from, and the wildcard that numbers its tasks (None: one task)."""

    needs: tuple[str, ...] = ()
    per: str | None = None


STEPS: dict[str, Step] = {
    "crawl.render": Step(),
    "ingest.extract": Step(("crawl.render",), per="shard"),
    "ingest.check": Step(("ingest.extract",)),
    "language.score": Step(("ingest.extract",), per="shard"),
    "language.select": Step(("language.score", "ingest.check")),
    "heuristics.score": Step(("ingest.extract", "language.score", "language.select"), per="shard"),
    "heuristics.select": Step(("heuristics.score", "ingest.extract")),
    "dedup.signature": Step(("ingest.extract", "heuristics.select"), per="shard"),
    "dedup.exact": Step(("dedup.signature",)),
    "dedup.band": Step(("dedup.signature", "dedup.exact"), per="band"),
    "dedup.verify": Step(("dedup.band", "ingest.extract"), per="shard"),
    "dedup.select": Step(("dedup.verify", "dedup.exact", "dedup.signature")),
    "quality.train": Step(("ingest.extract", "dedup.select")),
    "quality.score": Step(("quality.train", "ingest.extract", "dedup.select"), per="shard"),
    "quality.select": Step(("quality.score",)),
    "corpus.split": Step(("ingest.extract", "language.select", "heuristics.select", "dedup.select", "quality.select")),
    "corpus.write": Step(
        ("ingest.extract", "language.select", "heuristics.select", "dedup.select", "quality.select", "corpus.split"),
        per="shard",
    ),
    "tokenize.train": Step(("corpus.write",)),
    "tokenize.encode": Step(("tokenize.train", "corpus.write"), per="shard"),
    "pretrain.train": Step(("tokenize.encode", "tokenize.train")),
    "finetune.pairs": Step(("corpus.write",)),
    "finetune.train": Step(("pretrain.train", "finetune.pairs")),
    "evaluate.model": Step(("pretrain.train", "finetune.train", "finetune.pairs", "tokenize.encode"), per="model"),
    "report.render": Step(("evaluate.model",)),
}

MODELS = ("pretrain", "finetune")
TASKS = 256  # most tasks of a sharded step after ingest: with more shards, a task owns several (few, fat tasks)
DEMO_CRAWL = "crawl"  # the source kind that crawl.render writes


def needs(step: str, config: dict[str, Any], task: str = "") -> tuple[str, ...]:
    """The steps that `step` reads from under this config.

    The demo crawl is needed only where a source asks for it, and a model's evaluation needs that model only.
    """
    found = STEPS[step].needs
    if step == "ingest.extract" and not any(s["kind"] == DEMO_CRAWL for s in config["ingest"]["extract"]["sources"]):
        found = tuple(name for name in found if name != "crawl.render")
    if step == "evaluate.model" and task:
        others = {f"{model}.train" for model in MODELS if model != task}
        found = tuple(name for name in found if name not in others)
    return found


def shards(config: dict[str, Any]) -> list[str]:
    """The zero-padded shard numbers."""
    return [f"{number:05d}" for number in range(config["ingest"]["extract"]["shards"])]


def owned(shard: str, config: dict[str, Any]) -> list[str]:
    """The shards of the task that is called by its first: every TASKS-th from there."""
    return [f"{number:05d}" for number in range(int(shard), config["ingest"]["extract"]["shards"], TASKS)]


def tasks(step: str, config: dict[str, Any]) -> list[str]:
    """The task ids of a step: shard or band numbers, model names, or [""] for a one-task step.

    Each file shard is an ingest task. Later steps have at most TASKS tasks, each called by the first shard it owns.
    """
    per = STEPS[step].per
    if per == "shard":
        return shards(config) if step == "ingest.extract" else shards(config)[:TASKS]
    if per == "band":
        return [f"{number:02d}" for number in range(config["dedup"]["signature"]["bands"])]
    if per == "model":
        return list(MODELS)
    return [""]
