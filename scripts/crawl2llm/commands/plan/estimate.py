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
from crawl2llm.commands.plan.counting_steps import UNCOUNTED, counting_step
from crawl2llm.commands.plan.distil_work import distil_operations
from crawl2llm.commands.plan.dryrun import Task, variant_and_step
from crawl2llm.commands.plan.last_run import LastRun
from crawl2llm.core.errors import InputError
from crawl2llm.formats.model_summaries import parameter_count
from crawl2llm.stages.tokenize.ready_checks import with_known_vocabulary
from crawl2llm.training import auto, cost_estimate, gpus
from crawl2llm.training.parameters import model_of_summary
from crawl2llm.training.pretraining_settings import PlanSettings, TrainSettings
from crawl2llm.training.schedule import make_plan


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


def parallel_seconds(tasks: Iterable[tuple[float, int]], cores: int | None) -> float:
    """Seconds until the last of one step's tasks, (seconds, threads) each, has ended; cores None: all at once.

    No schedule is shorter, and one that starts the longest tasks first is not much longer.
    """
    costs = list(tasks)
    longest = max((seconds for seconds, _ in costs), default=0.0)
    if cores is None:
        return longest
    return max(longest, sum(seconds * min(threads, cores) for seconds, threads in costs) / cores)


def training_operations(settings: dict[str, Any], tokens: int, vocabulary: int) -> tuple[float, float] | None:
    """Floating-point operations (of a token, of the whole pre-training) with these settings on `tokens` training tokens.

    None for settings that such a corpus cannot go with.
    """
    try:
        resolved = auto.resolve(TrainSettings.model_validate(settings), tokens, vocabulary)
        schedule = make_plan(resolved, tokens)
    except InputError:
        return None
    per_token = auto.training_flops_per_token(resolved.model, vocabulary)
    return float(per_token), float(schedule.tokens_until(schedule.steps) * per_token)


def measured_operations(summary: dict[str, Any]) -> tuple[float, float] | None:
    """The same of the pre-training with this summary in its manifest; None if it does not say."""
    try:
        per_token = auto.training_flops_per_token(model_of_summary(summary["shape"]), summary["shape"]["vocabulary"])
        # Under a batch_ramp steps differ; an earlier version's manifest may not say the tokens.
        tokens = summary.get("tokens") or summary["steps"] * summary["global_batch_tokens"]
        return float(per_token), float(tokens * per_token)
    except (AttributeError, KeyError, TypeError):
        return None


def training_vocabulary(config: dict[str, Any], summary: dict[str, Any]) -> int:
    """Entries of the tokenizer: the number in the config, or those of the last pre-training, whose manifest has this summary."""
    setting = with_known_vocabulary(config)["tokenize"]["train"]["vocabulary"]
    return setting if isinstance(setting, int) else int(summary["shape"]["vocabulary"])


def ratio(now: float | None, then: float | None) -> float:
    """now ÷ then; 1 where either is not known or nothing."""
    return now / then if now and then else 1.0


class Work:
    """What the tasks of a plan have to do, and what they may take, by what the last run left.

    variants: their complete configs, if they are known; sources: the source files of their shards (see Project.sources).
    """

    def __init__(
        self,
        last_run: LastRun,
        tasks: list[Task],
        variants: dict[str, dict[str, Any]] | None = None,
        sources: dict[str, dict[str, list[str]]] | None = None,
    ) -> None:
        self.last, self.variants, self.sources = last_run, variants or {}, sources or {}
        self.tasks_by_place: dict[tuple[str, str], list[Task]] = {}
        for task in tasks:
            self.tasks_by_place.setdefault(variant_and_step(task.manifest), []).append(task)
        # Asked for every task; with 1,000 shards each answer is a sum over as many manifests.
        self.read_before, self.read_now = cache(self._read_before), cache(self._read_now)
        self.kept_now, self.work_ratio = cache(self._kept_now), cache(self._work_ratio)
        self.is_comparable = cache(self._is_comparable)

    def owning_variant(self, variant: str, step: str) -> str:
        """The variant whose results of a step this one reads."""
        return variant if (variant, step) in self.tasks_by_place or self.last.manifests(variant, step) else "main"

    def counting_step(self, variant: str, step: str) -> str | None:
        """The step whose kept documents say how much `step` has to do in this variant."""
        config = self.variants.get(variant) or self.variants.get("main") or {}
        return counting_step(
            step, filter_order.used_filters(config) if "filters" in config else list(filter_order.FILTERS)
        )

    def _read_before(self, variant: str, step: str) -> float:
        """What a step read when it was measured: documents, or bytes of source files."""
        owner = self.last.measured_variant(variant, step)
        manifests = self.last.manifests(owner, step).values()
        if step == "ingest.extract":
            return float(sum(manifest.summary.get("bytes_read", 0) for manifest in manifests))
        if step in UNCOUNTED:
            counted_step = str(self.counting_step(variant, step))
            manifests = self.last.manifests(self.owning_variant(owner, counted_step), counted_step).values()
            return float(sum(manifest.counts.get("kept", 0) for manifest in manifests))
        return float(sum(manifest.counts.get("in", 0) for manifest in manifests))

    def _read_now(self, variant: str, step: str) -> float | None:
        """What a step will read now, in the unit of `then`; None if that is not known before the run."""
        if step == "ingest.extract":
            tasks = self.tasks_by_place.get((variant, step), [])
            planned_shards = {shard for task in tasks for shard in self.shards_of(task)}
            remaining = [
                manifest
                for shard, manifest in self.last.manifests(variant, step).items()
                if shard not in planned_shards
            ]
            sizes = [*map(self.source_bytes, tasks), *(manifest.summary.get("bytes_read") for manifest in remaining)]
            return float(sum(filter(None, sizes))) if None not in sizes else None
        counted_step = str(self.counting_step(variant, step))
        return self.kept_now(self.owning_variant(variant, counted_step), counted_step)

    def _kept_now(self, variant: str, step: str) -> float | None:
        """Documents that a step keeps now: those that it kept, or as large a share as before of what it will read."""
        owner = self.last.measured_variant(variant, step) if (variant, step) in self.tasks_by_place else variant
        manifests = self.last.manifests(owner, step).values()
        kept = float(sum(manifest.counts.get("kept", 0) for manifest in manifests))
        if (variant, step) in self.tasks_by_place:
            kept *= ratio(self.read_now(variant, step), self.read_before(variant, step))
        return kept or None

    def shards_of(self, task: Task) -> list[str]:
        """The shards (bands, the model) of a task."""
        config = self.variants.get(task.variant)
        return steps.result_ids_of_task(task.step, task.id, config) if config else [task.id]

    def source_bytes_before(self, task: Task) -> int | None:
        """Bytes of source files from which all results of a task of ingest.extract were made; None if one is not there."""
        manifests = self.last.manifests(self.last.measured_variant(task.variant, task.step), task.step)
        sizes = [
            manifests[shard].summary.get("bytes_read") if shard in manifests else None for shard in self.shards_of(task)
        ]
        return sum(filter(None, sizes)) if None not in sizes else None

    def source_bytes(self, task: Task) -> int | None:
        """Bytes of the source files that a task of ingest.extract will read; None if that is not known."""
        if task.inputs:  # the demo's crawl: as large as before
            return self.source_bytes_before(task)
        if task.variant not in self.sources:
            return None
        files = self.sources[task.variant]
        try:
            return sum(
                (self.last.folder / entry.split("=", 1)[1]).stat().st_size
                for shard in self.shards_of(task)
                for entry in files.get(shard, [])
            )
        except OSError:
            return None

    def _work_ratio(self, variant: str, step: str, model: str = "") -> float:
        """How much more a step has to do now than when it was measured, for this model where it has a task for each; 1: not known."""
        if step == model_registry.DISTIL_STEP:
            return self._distil_ratio(variant, model)
        if step != "ingest.extract" and self.counting_step(variant, step) is None:
            return 1.0
        by_documents = ratio(self.read_now(variant, step), self.read_before(variant, step))
        if step in model_registry.MAKERS and (operation_ratios := self._operation_ratios(variant)):
            if step == model_registry.BASE_STEP:
                return operation_ratios[1]
            return by_documents * self._epoch_ratio(variant, step, model) * operation_ratios[0]
        return by_documents

    def _operation_ratios(self, variant: str) -> tuple[float, float] | None:
        """The operations (of a token, of the whole pre-training) over those of the one that was measured; None if one is unknown."""
        manifest = self.last.manifests(self.last.measured_variant(variant, "pretrain.train"), "pretrain.train").get("")
        config = self.variants.get(variant)
        if manifest is None or config is None or (before := measured_operations(manifest.summary)) is None:
            return None
        tokens, vocabulary = self._training_tokens(variant), training_vocabulary(config, manifest.summary)
        now = training_operations(config["pretrain"]["train"], tokens, vocabulary)
        return (now[0] / before[0], now[1] / before[1]) if now else None

    def _training_tokens(self, variant: str) -> int:
        """Training tokens of a variant: those that were counted, or as many as its tokenize.encode will make of what it reads now."""
        step = "tokenize.encode"
        owner = self.owning_variant(variant, step)
        shards = self.last.manifests(self.last.measured_variant(owner, step), step).values()
        tokens = sum(shard.summary.get("train", {}).get("tokens", 0) for shard in shards)
        return round(tokens * (self.work_ratio(owner, step) if (owner, step) in self.tasks_by_place else 1.0))

    def _is_comparable(self, variant: str, profile_gpu: str) -> bool:
        """Whether a pre-training may be as fast as the last one, by the rule of pretrain.plan; yes, if too little is known of either."""
        step = model_registry.BASE_STEP
        config, owner = self.variants.get(variant), self.last.measured_variant(variant, step)
        last = cost_estimate.read_last_training(self.last.folder / "results" / owner / steps.folder_of(step))
        manifest = self.last.manifests(owner, step).get("")
        if config is None or last is None or manifest is None:
            return True
        train = TrainSettings.model_validate(config["pretrain"]["train"])
        try:
            plan_settings = PlanSettings.model_validate(config["pretrain"].get("plan", {}))
            gpu = gpus.training_gpu(plan_settings, train.device, profile_gpu)
            vocabulary = training_vocabulary(config, manifest.summary)
            resolved = auto.resolve(train, self._training_tokens(variant), vocabulary)
        except InputError:
            return True
        parameters = auto.parameter_totals(resolved.model, vocabulary)[0]
        return cost_estimate.is_comparable(last, {"parameters": {"total": parameters}}, train, gpu)

    def _epoch_ratio(self, variant: str, step: str, model: str) -> float:
        """The epochs of a training over those of the one that was measured: of the same model, or of the first that was."""
        config, (_, before) = self.variants.get(variant), self._settings_before(variant, step, model)
        return ratio(model_registry.section(config, step, model).get("epochs"), before.get("epochs")) if config else 1.0

    def _settings_before(self, variant: str, step: str, model: str) -> tuple[str, dict[str, Any]]:
        """(model, settings of a step) that was measured: the same model, or the first that was; {} of none."""
        measured = self.last.task_seconds(self.last.measured_variant(variant, step), step)
        similar_model = model if model in measured else next(iter(measured), "")
        return similar_model, self.last.record(variant, step, similar_model).get("fingerprint", {}).get("config", {})

    def _distil_ratio(self, variant: str, model: str) -> float:
        """The operations of a distillation over those of the one that was measured: of the same model, or of the first that was."""
        step, config = model_registry.DISTIL_STEP, self.variants.get(variant)
        similar_model, before = self._settings_before(variant, step, model)
        if config is None or not before or similar_model not in config["models"]:
            return 1.0

        def parameters(name: str) -> int:
            """Of a model of the registry, as the last run left it."""
            if name not in (model_registry.BASE, *config["models"]):
                return 0
            of_step, task = model_registry.making_task(config, name)
            manifest = self.last.manifests(self.owning_variant(variant, of_step), of_step).get(task)
            return int(parameter_count(manifest.summary) or 0) if manifest else 0

        now = model_registry.section(config, step, model)
        return ratio(
            distil_operations(now, model_registry.parent(config, model), parameters),
            distil_operations(before, model_registry.parent(config, similar_model), parameters),
        )

    def seconds(self, task: Task) -> float | None:
        """Seconds that a task may take; None if its step was never measured, or not on a GPU, which it is to have now, and for a
        pre-training that is not comparable with the last one.

        Of a training that is judged at rungs, which were never measured, each stretch takes its share of the steps.
        """
        config = self.variants.get(task.variant)
        if task.step not in (steps.RUNG, model_registry.BASE_STEP) or config is None or not halving.is_used(config):
            return self._whole_seconds(task)
        shares = [0.0, *config["sweep"]["halving"]["rungs"], 1.0]
        if self.last.task_seconds("main", steps.RUNG):  # then so is what a training takes after its last rung
            return self._whole_seconds(task)
        if task.step == model_registry.BASE_STEP:
            whole, rung = self._whole_seconds(task), len(shares) - 1
        else:
            name, rung = halving.parse_task(task.id)
            train = f"results/{name}/{steps.folder_of(model_registry.BASE_STEP)}/manifest.json"
            whole = self._whole_seconds(Task(steps.rule_of(model_registry.BASE_STEP), {**task.facts, "output": train}))
        return None if whole is None else whole * (shares[rung] - shares[rung - 1])

    def _whole_seconds(self, task: Task) -> float | None:
        variant, step = task.variant, task.step
        owner = self.last.measured_variant(variant, step)
        measured = self.last.task_seconds(owner, step)
        gpus_before, gpus_now = self.last.gpus_used(variant, step, task.id), self.gpus_of(task)
        if not measured or (gpus_now and gpus_before == 0):
            return None
        if step == model_registry.BASE_STEP and not self.is_comparable(variant, task.profile_gpu):
            return None
        gpu_ratio = ratio(gpus_before, gpus_now)  # twice the GPUs, half the time
        config = self.variants.get(variant)
        task_count = len(steps.task_ids(step, config) if config else self.tasks_by_place.get((variant, step), [])) or 1
        if step == "ingest.extract" and (size := self.source_bytes(task)) is not None:
            same = len(measured) == task_count or len(self.shards_of(task)) == 1  # the task had these shards then too
            if same and task.id in measured and (before := self.source_bytes_before(task)):
                return measured[task.id] * size / before
            return sum(measured.values()) * ratio(size, self.read_before(variant, step))
        if steps.STEPS[step].per == "model":  # a new one takes as long as the others
            known_seconds = [measured[task.id]] if task.id in measured else list(measured.values())
            return sum(known_seconds) / len(known_seconds) * self.work_ratio(variant, step, task.id) * gpu_ratio
        trained = self.last.training_seconds(owner) if step == model_registry.BASE_STEP else 0.0
        if task.id in measured and 0 < trained <= measured[task.id]:  # more: of several starts
            # Start and end take as long as before, however long the training is.
            return measured[task.id] - trained + trained * self.work_ratio(variant, step) * gpu_ratio
        if task.id in measured and len(measured) == task_count:  # as many tasks as then: each has what it had
            return measured[task.id] * self.work_ratio(variant, step) * gpu_ratio
        return sum(measured.values()) * self.work_ratio(variant, step) / task_count * gpu_ratio

    def gpus_of(self, task: Task) -> int:
        """GPUs that a task will have: as the profile asks, else those of the config where the last result was made on any."""
        if task.requested_gpus is not None:
            return task.requested_gpus
        gpus_before = self.last.gpus_used(task.variant, task.step, task.id)
        config = self.variants.get(task.variant) or self.variants.get("main")
        if not gpus_before or config is None or task.step not in model_registry.MAKERS:
            return gpus_before or 0  # of a rung too: what its contender had there
        settings = model_registry.section(config, task.step, task.id)
        return int(settings["processes"]) * int(settings["nodes"])


def estimates_by_rule(tasks: list[Task], work: Work, cores: int | None) -> dict[str, Estimate]:
    """What the tasks of each rule will take, on `cores` cores of this machine, or all at once (None)."""
    timed_tasks_by_rule: dict[str, list[tuple[Task, float | None]]] = {}
    for task in tasks:
        timed_tasks_by_rule.setdefault(task.rule, []).append((task, work.seconds(task)))
    estimates = {}
    for rule, timed_tasks in timed_tasks_by_rule.items():
        measured = [(task, seconds) for task, seconds in timed_tasks if seconds is not None]
        hours = sum(seconds * work.gpus_of(task) for task, seconds in measured) / 3600
        wall = parallel_seconds([(seconds, task.threads) for task, seconds in measured], cores)
        estimates[rule] = Estimate(wall, hours, len(timed_tasks) - len(measured), len(timed_tasks))
    return estimates
