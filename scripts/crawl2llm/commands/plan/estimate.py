"""How long the tasks of a plan may take, and on how many GPUs: what the same tasks took before, scaled by what they read now.

Seconds are those of the benchmark files of the last run in the folder. What a step read is in its manifest: documents, bytes of
source files, or the operations of a training. What it will read is known as far as the steps above do not run again; of one that
does, it is assumed to keep the same share as before. What was never measured stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from crawl2llm.chain import filter_order, halving, model_registry, steps
from crawl2llm.commands.plan.dryrun import Task, folders
from crawl2llm.commands.plan.last_run import Last
from crawl2llm.core.errors import InputError
from crawl2llm.training import auto
from crawl2llm.training.schedule import plan

# The step whose kept documents (pairs, of a fine-tuning) say how much a step has to do, where that is not the last of what it reads.
READS = {
    "dedup.band": "dedup.exact",
    "dedup.sets": "dedup.exact",
    "dedup.verify": "dedup.exact",
    "dedup.select": "dedup.signature",
    "quality.calibrate": filter_order.BEFORE,
    "quality.combine": filter_order.BEFORE,
    "quality.select": filter_order.BEFORE,
    "corpus.split": filter_order.BEFORE,
    "corpus.heldout": steps.DOCUMENTS,
    "corpus.write": steps.DOCUMENTS,
    "tokenize.encode": "corpus.write",
    "finetune.train": "finetune.pairs",
    "align.reward": "align.pairs",
    "align.train": "align.pairs",
}
# These have as much to do as before.
SAME = (
    "crawl.render",
    *steps.SYNTHESIZE,
    "ingest.list",
    "ingest.fetch",
    "corpus.reference",
    "pretrain.mix",
    "pretrain.plan",
    "pretrain.rung",
    "pretrain.halve",
    "decontaminate.index",
    "compress.prune",
    "compress.quantize",
    "evaluate.items",
    "evaluate.model",
    "compress.export",
    "evaluate.stage",
    "evaluate.public",
    "evaluate.found",
    "evaluate.curve",
    "evaluate.common",
    "evaluate.generate",
    "evaluate.judge",
    "report.inspect",
    "report.render",
    "report.compare",
)
# Their manifests do not count what they read: bands, models, and pairs, of which a document gives several.
UNCOUNTED = {
    "boilerplate.frequent", "dedup.band", "dedup.sets", "dedup.verify", "paragraphs.repeated", "substrings.shared", "substrings.repeated",
    "heuristics.calibrate", "quality.train", "quality.lm", "quality.ngrams", "quality.calibrate", "topics.train",
    "tokenize.train", "pretrain.train",
    "finetune.pairs",
    "finetune.train", "align.pairs", "align.reward", "align.train",
}  # fmt: skip


def above(step: str, filters: list[str]) -> str | None:
    """The step whose kept documents say how much `step` has to do, where a run uses these filters; None: as much as before."""
    if step in SAME or step == steps.DOCUMENTS:
        return None
    verdict = filter_order.verdicts(filters, steps.stage_of(step))[-1]
    said = READS.get(step)
    if said == filter_order.BEFORE or (said is None and filter_order.BEFORE in steps.STEPS[step].needs):
        return verdict
    return said or steps.STEPS[step].needs[0]


@dataclass(frozen=True)
class Estimate:
    """What a rule, or all of them, will take. unknown: tasks that were never measured, which are not in the numbers."""

    seconds: float = 0.0  # wall time
    gpu_hours: float = 0.0
    unknown: int = 0
    tasks: int = 0

    def __add__(self, other: Estimate) -> Estimate:
        """One after the other."""
        return Estimate(
            self.seconds + other.seconds,
            self.gpu_hours + other.gpu_hours,
            self.unknown + other.unknown,
            self.tasks + other.tasks,
        )


def together(tasks: Iterable[tuple[float, int]], cores: int | None) -> float:
    """Seconds until the last of one step's tasks, (seconds, threads) each, has ended; cores None: all at once.

    No schedule is shorter, and one that starts the longest tasks first is not much longer.
    """
    held = list(tasks)
    longest = max((seconds for seconds, _ in held), default=0.0)
    if cores is None:
        return longest
    return max(longest, sum(seconds * min(threads, cores) for seconds, threads in held) / cores)


def operations(settings: dict[str, Any], tokens: int, vocabulary: int) -> tuple[float, float] | None:
    """Floating-point operations (of a token, of the whole pre-training) with these settings on `tokens` training tokens.

    None for settings that such a corpus cannot go with.
    """
    try:
        made = auto.resolve(settings, tokens, vocabulary)
        planned = plan(made, tokens)
    except InputError:
        return None
    each = auto.operations(made["model"], vocabulary)
    return float(each), float(planned.tokens(planned.steps) * each)


def done(summary: dict[str, Any]) -> tuple[float, float] | None:
    """The same of the pre-training with this summary in its manifest; None where it does not say."""
    try:
        each = auto.operations(summary["shape"], summary["shape"]["vocabulary"])
        # Under a batch_ramp steps differ; an earlier version's manifest may not say the tokens.
        tokens = summary.get("tokens") or summary["steps"] * summary["global_batch_tokens"]
        return float(each), float(tokens * each)
    except (KeyError, TypeError):
        return None


def ratio(now: float | None, then: float | None) -> float:
    """now ÷ then; 1 where either is not known or nothing."""
    return now / then if now and then else 1.0


class Work:
    """What the tasks of a plan have to do, and what they may take, by what the last run left.

    variants: their complete configs, where they are known; sources: the source files of their shards (see Project.sources).
    """

    def __init__(
        self,
        last: Last,
        tasks: list[Task],
        variants: dict[str, dict[str, Any]] | None = None,
        sources: dict[str, dict[str, list[str]]] | None = None,
    ) -> None:
        self.last, self.variants, self.sources = last, variants or {}, sources or {}
        self.planned: dict[tuple[str, str], list[Task]] = {}
        for task in tasks:
            self.planned.setdefault(folders(task.manifest), []).append(task)
        # Asked for every task; with 1,000 shards each answer is a sum over as many manifests.
        self.then, self.reads = cache(self._then), cache(self._reads)
        self.kept, self.scale = cache(self._kept), cache(self._scale)

    def holder(self, variant: str, step: str) -> str:
        """The variant whose results of a step this one reads."""
        return variant if (variant, step) in self.planned or self.last.manifests(variant, step) else "main"

    def above(self, variant: str, step: str) -> str | None:
        """The step whose kept documents say how much `step` has to do in this variant."""
        config = self.variants.get(variant) or self.variants.get("main") or {}
        return above(step, filter_order.filters(config) if "filters" in config else list(filter_order.FILTERS))

    def _then(self, variant: str, step: str) -> float:
        """What a step read when it was measured: documents, or bytes of source files."""
        owner = self.last.before(variant, step)
        held = self.last.manifests(owner, step).values()
        if step == "ingest.extract":
            return float(sum(found.summary.get("bytes_read", 0) for found in held))
        if step in UNCOUNTED:
            read = str(self.above(variant, step))
            held = self.last.manifests(self.holder(owner, read), read).values()
            return float(sum(found.counts.get("kept", 0) for found in held))
        return float(sum(found.counts.get("in", 0) for found in held))

    def _reads(self, variant: str, step: str) -> float | None:
        """What a step will read now, in the unit of `then`; None where that is not known before the run."""
        if step == "ingest.extract":
            tasks = self.planned.get((variant, step), [])
            planned = {shard for task in tasks for shard in self.owned(task)}
            rest = [made for shard, made in self.last.manifests(variant, step).items() if shard not in planned]
            sizes = [*map(self.size, tasks), *(made.summary.get("bytes_read") for made in rest)]
            return float(sum(filter(None, sizes))) if None not in sizes else None
        read = str(self.above(variant, step))
        return self.kept(self.holder(variant, read), read)

    def _kept(self, variant: str, step: str) -> float | None:
        """Documents that a step keeps now: those that it kept, or as large a share as before of what it will read."""
        owner = self.last.before(variant, step) if (variant, step) in self.planned else variant
        held = self.last.manifests(owner, step).values()
        kept = float(sum(found.counts.get("kept", 0) for found in held))
        if (variant, step) in self.planned:
            kept *= ratio(self.reads(variant, step), self.then(variant, step))
        return kept or None

    def owned(self, task: Task) -> list[str]:
        """The shards (bands, the model) of a task."""
        config = self.variants.get(task.variant)
        return steps.owned(task.step, task.id, config) if config else [task.id]

    def read_then(self, task: Task) -> int | None:
        """Bytes of source files from which all results of a task of ingest.extract were made; None where one is not there."""
        held = self.last.manifests(self.last.before(task.variant, task.step), task.step)
        sizes = [held[shard].summary.get("bytes_read") if shard in held else None for shard in self.owned(task)]
        return sum(filter(None, sizes)) if None not in sizes else None

    def size(self, task: Task) -> int | None:
        """Bytes of the source files that a task of ingest.extract will read; None where that is not known."""
        if task.inputs:  # the demo's crawl: as large as before
            return self.read_then(task)
        if task.variant not in self.sources:
            return None
        files = self.sources[task.variant]
        try:
            return sum(
                (self.last.folder / entry.split("=", 1)[1]).stat().st_size
                for shard in self.owned(task)
                for entry in files.get(shard, [])
            )
        except OSError:
            return None

    def _scale(self, variant: str, step: str, model: str = "") -> float:
        """How much more a step has to do now than when it was measured, for this model where it has a task for each; 1: not known."""
        if step != "ingest.extract" and self.above(variant, step) is None:
            return 1.0
        by_documents = ratio(self.reads(variant, step), self.then(variant, step))
        if step in steps.MAKERS and (more := self._operations(variant)):
            return (
                more[1]
                if step == model_registry.BASE_STEP
                else by_documents * self._epochs(variant, step, model) * more[0]
            )
        return by_documents

    def _operations(self, variant: str) -> tuple[float, float] | None:
        """The operations (of a token, of the whole pre-training) over those of the one that was measured; None where one is unknown."""
        made = self.last.manifests(self.last.before(variant, "pretrain.train"), "pretrain.train").get("")
        config = self.variants.get(variant)
        if made is None or config is None or (then := done(made.summary)) is None:
            return None
        owner = self.holder(variant, "tokenize.encode")
        shards = self.last.manifests(self.last.before(owner, "tokenize.encode"), "tokenize.encode").values()
        tokens = sum(shard.summary.get("train", {}).get("tokens", 0) for shard in shards)
        more = self.scale(owner, "tokenize.encode") if (owner, "tokenize.encode") in self.planned else 1.0
        wanted = config["tokenize"]["train"]["vocabulary"]
        vocabulary = wanted if isinstance(wanted, int) else made.summary["shape"]["vocabulary"]
        now = operations(config["pretrain"]["train"], round(tokens * more), vocabulary)
        return (now[0] / then[0], now[1] / then[1]) if now else None

    def _epochs(self, variant: str, step: str, model: str) -> float:
        """The epochs of a training over those of the one that was measured: of the same model, or of the first that was."""
        config = self.variants.get(variant)
        measured = self.last.measured(self.last.before(variant, step), step)
        like = model if model in measured else next(iter(measured), "")
        then = self.last.record(variant, step, like).get("fingerprint", {}).get("config", {}).get("epochs")
        return ratio(model_registry.section(config, step, model).get("epochs"), then) if config else 1.0

    def seconds(self, task: Task) -> float | None:
        """Seconds that a task may take; None where its step was never measured, or not on a GPU, which it is to have now.

        Of a training that is judged at rungs, which were never measured, each stretch takes its share of the steps.
        """
        config = self.variants.get(task.variant)
        if task.step not in (steps.RUNG, model_registry.BASE_STEP) or config is None or not halving.is_used(config):
            return self._seconds(task)
        shares = [0.0, *config["sweep"]["halving"]["rungs"], 1.0]
        if self.last.measured("main", steps.RUNG):  # then so is what a training takes after its last rung
            return self._seconds(task)
        if task.step == model_registry.BASE_STEP:
            whole, rung = self._seconds(task), len(shares) - 1
        else:
            name, rung = halving.parsed(task.id)
            train = f"results/{name}/{steps.folder_of(model_registry.BASE_STEP)}/manifest.json"
            whole = self._seconds(Task(steps.rule_of(model_registry.BASE_STEP), {**task.facts, "output": train}))
        return None if whole is None else whole * (shares[rung] - shares[rung - 1])

    def _seconds(self, task: Task) -> float | None:
        variant, step = task.variant, task.step
        owner = self.last.before(variant, step)
        measured = self.last.measured(owner, step)
        then, now = self.last.gpus(variant, step, task.id), self.gpus(task)
        if not measured or (now and then == 0):
            return None
        cards = ratio(then, now)  # twice the GPUs, half the time
        config = self.variants.get(variant)
        number = len(steps.tasks(step, config) if config else self.planned.get((variant, step), [])) or 1
        if step == "ingest.extract" and (size := self.size(task)) is not None:
            same = len(measured) == number or len(self.owned(task)) == 1  # the task had these shards then too
            if same and task.id in measured and (before := self.read_then(task)):
                return measured[task.id] * size / before
            return sum(measured.values()) * ratio(size, self.then(variant, step))
        if steps.STEPS[step].per == "model":  # a new one takes as long as the others
            known = [measured[task.id]] if task.id in measured else list(measured.values())
            return sum(known) / len(known) * self.scale(variant, step, task.id) * cards
        trained = self.last.training(owner) if step == model_registry.BASE_STEP else 0.0
        if task.id in measured and 0 < trained <= measured[task.id]:  # more: of several starts
            # Start and end take as long as before, however long the training is.
            return measured[task.id] - trained + trained * self.scale(variant, step) * cards
        if task.id in measured and len(measured) == number:  # as many tasks as then: each has what it had
            return measured[task.id] * self.scale(variant, step) * cards
        return sum(measured.values()) * self.scale(variant, step) / number * cards

    def gpus(self, task: Task) -> int:
        """GPUs that a task will have: as the profile asks, else those of the config where the last result was made on any."""
        if task.gpus is not None:
            return task.gpus
        then = self.last.gpus(task.variant, task.step, task.id)
        config = self.variants.get(task.variant) or self.variants.get("main")
        if not then or config is None or task.step not in steps.MAKERS:
            return then or 0  # of a rung too: what its contender had there
        own = model_registry.section(config, task.step, task.id)
        return int(own["processes"]) * int(own.get("nodes", 1))


def by_rule(tasks: list[Task], work: Work, cores: int | None) -> dict[str, Estimate]:
    """What the tasks of each rule will take, on `cores` cores of this machine, or all at once (None)."""
    found: dict[str, list[tuple[Task, float | None]]] = {}
    for task in tasks:
        found.setdefault(task.rule, []).append((task, work.seconds(task)))
    out = {}
    for rule, held in found.items():
        known = [(task, seconds) for task, seconds in held if seconds is not None]
        hours = sum(seconds * work.gpus(task) for task, seconds in known) / 3600
        wall = together([(seconds, task.threads) for task, seconds in known], cores)
        out[rule] = Estimate(wall, hours, len(held) - len(known), len(held))
    return out
