"""What follows from a step's name in its rule: files, environment, threads, GPUs, and the words of its command line.

A rule names what differs from step to step, its inputs. Each named input, and each named param, is an option of the step's program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from crawl2llm.chain import gpu_slots, halving, model_registry, placement_options, sources, steps
from crawl2llm.chain.fingerprint import fingerprint_for_program
from crawl2llm.chain.project import Project
from crawl2llm.core.nested_dicts import lookup
from crawl2llm.workflow.rule_inputs import MAIN, RuleInputs

TRAIN = "pretrain.train"
# In place of pretrain.train if trainings are judged at rungs:
CONTENDER = "crawl2llm.stages.pretrain.halving.contender"
ONE_SHARD_AT_A_TIME = ("ingest.fetch",)  # it has requests of its own at the same time
# By step, the option that says what its threads are, in place of its placement key:
WITH_THREADS_OPTION = {"crawl.render": "--workers"}
# The shell command of every step, on one line (workflow/cutoff_planning.py reads it), and that of a training, whose launcher starts it
# in several processes.
PROGRAM = """python -m {params.program:q} \
    --config {params.fingerprint:q} \
    {params.options:q} \
    --manifest {output[0]:q} \
    --log {log:q}
"""
TRAINING = PROGRAM.replace("python -m", "exec python -m crawl2llm.training.launch {params.launcher:q}")
WildcardFunction = Callable[[Any], Any]


def _folder_with_task(step: str) -> PurePosixPath:
    """`{variant}/tokenize/encode/{shard}`, without the last part for a step with one task."""
    per = steps.STEPS[step].per
    folder = "{variant}" / PurePosixPath(steps.folder_of(step))
    return folder / f"{{{per}}}" if per else folder


def result(step: str) -> str:
    """The manifest of a task."""
    task = _folder_with_task(step)
    return f"results/{task}.manifest.json" if steps.STEPS[step].per else f"results/{task}/manifest.json"


def log_file(step: str) -> str:
    """The log of a task."""
    return f"logs/{_folder_with_task(step)}.log"


def benchmark_file(step: str) -> str:
    """Where Snakemake writes what a task took."""
    variant, *rest = _folder_with_task(step).parts
    return f"results/{variant}/benchmarks/{'/'.join(rest)}.tsv"


def environment_file(step: str) -> str:
    """The conda environment of a step, from the folder of the project."""
    return f"envs/{steps.STEPS[step].environment}.yaml"


def is_launched(step: str) -> bool:
    """Whether a launcher starts the step's program."""
    return gpu_slots.is_launched(_step_of_settings(step))


def takes_gpus(step: str) -> bool:
    """Whether a task of the step computes on GPUs, if there are any."""
    return step in gpu_slots.ONE_GPU_STEPS or is_launched(step)


def _step_of_settings(step: str) -> str:
    """The step whose section of the config says how this runs: a training up to a rung runs as the whole training does."""
    return TRAIN if step == steps.RUNG else step


class RuleParts:
    """The functions of the wildcards that the rules of a project have beside their inputs.

    image: options of the launcher for the container that it starts trainings in.
    """

    def __init__(self, project: Project, inputs: RuleInputs, image: Sequence[str] = ()) -> None:
        self.project = project
        self.variants = project.variants
        self.inputs = inputs
        self.image = image

    def section(self, wildcards: Any, step: str) -> dict[str, Any]:
        """The section of a step in the config of the variant, with the keys of the model's own where the wildcards name one."""
        if step == steps.RUNG:
            return self.variants[halving.parse_task(wildcards.contender)[0]]["pretrain"]["train"]
        return model_registry.section(self.variants[wildcards.variant], step, getattr(wildcards, "model", ""))

    def setting(self, step: str, key: str) -> WildcardFunction:
        """A value of the step's section, as the model that the wildcards name has it."""
        return lambda wildcards: self.section(wildcards, step)[key]

    def placement(self, step: str, target: bool | str = placement_options.PROGRAM) -> WildcardFunction:
        """A params entry: the placement keys of a step as options of its program; what is up to date does not depend on them.

        target: placement_options.LAUNCHER for those of the launcher, which starts the program.
        """
        return lambda wildcards: placement_options.option_words(
            _step_of_settings(step), self.section(wildcards, step), target
        )

    def fingerprint(self, step: str) -> WildcardFunction:
        """The params entry of a step: a function of the wildcards that gives the step's fingerprint."""
        per = steps.STEPS[step].per

        def fingerprint_of_task(wildcards: Any) -> str:
            task = getattr(wildcards, per) if per in steps.WITH_OWN_SETTINGS else ""
            return fingerprint_for_program(
                self.project.fingerprint(wildcards.variant, step, task), self.variants[wildcards.variant]["data"]
            )

        return fingerprint_of_task

    def threads(self, step: str) -> WildcardFunction | None:
        """The threads of a task; None: one.

        Of a training: those of each of its processes. Of a task that owns several shards: one for each, up to AT_ONCE; so many are done
        at the same time.
        """
        if is_launched(step):
            return self._training_threads(step)
        if "threads" in lookup(self.variants[MAIN], step):
            return self.setting(step, "threads")
        return self._shards_at_once(step) if self._does_shards(step) else None

    def calibration_threads(self, wildcards: Any) -> int:
        """The threads of a quantization: one where it reads no text."""
        is_calibrated = model_registry.is_calibrated(self.variants[wildcards.variant], wildcards.model)
        return int(self.section(wildcards, "compress.quantize")["threads"]) if is_calibrated else 1

    def source_access(self, wildcards: Any) -> str:
        """How remote files are reached: options and patience of each source, as JSON."""
        return sources.access_json(self.variants[wildcards.variant])

    def max_missing_files(self, wildcards: Any) -> int:
        """How many remote files of a shard may be missing. It decides no byte of a list, so it is no part of its fingerprint."""
        return int(self.variants[wildcards.variant]["ingest"]["extract"]["max_missing_files"])

    def gpu_count(self, step: str) -> WildcardFunction:
        """A resource: the GPUs of this machine that a task takes; 0 if there are none, and on a cluster, whose profile says it."""
        return lambda wildcards: gpu_slots.gpus_needed(_step_of_settings(step), self.section(wildcards, step))

    def program(self, step: str) -> WildcardFunction:
        """A params entry: the module that is a step's program, with what goes before its options."""

        def program_words(wildcards: Any) -> list[str]:
            halvings = self.inputs.manifests(steps.HALVE)(wildcards) if step == TRAIN else []
            if halvings:
                return [CONTENDER, "--halving", *halvings, "--contender", wildcards.variant]
            return steps.program_words(step)

        return program_words

    def launcher(self, step: str) -> WildcardFunction:
        """A params entry: the options of the launcher of a training."""
        words = self.placement(step, placement_options.LAUNCHER)
        return lambda wildcards: [*words(wildcards), *self.image]

    def options(self, step: str, by_name: Mapping[str, Any], words: Sequence[Any] = ()) -> Callable[..., list[str]]:
        """A params entry: the options of a step's program, with those of its placement keys.

        by_name: what its rule names, by the options' names. words: further words of the rule, as they are.
        """
        placement = self.placement(step)

        def option_words(wildcards: Any, threads: int) -> list[str]:
            out: list[str] = []
            for name, value in by_name.items():
                flag, value_words = placement_options.option_flag(name), self.inputs.words_of(value, wildcards)
                out += [f"{flag}={value_words}"] if isinstance(value_words, str) else [flag, *value_words]
            for value in words:
                out += self.inputs.words_of(value, wildcards)
            if step in WITH_THREADS_OPTION:
                return [*out, WITH_THREADS_OPTION[step], str(threads)]
            if steps.STEPS[step].per in ("shard", "band"):  # every part has a task
                out += ["--also", *self._further_results(step, wildcards)]
            if self._does_shards(step):
                out += ["--at-once", str(threads)]
            return out + placement(wildcards)

        return option_words

    def _does_shards(self, step: str) -> bool:
        """Whether a task does several of the shards that it owns at the same time."""
        return (
            steps.STEPS[step].per == "shard" and step not in ONE_SHARD_AT_A_TIME and step not in gpu_slots.ONE_GPU_STEPS
        )

    def _further_results(self, step: str, wildcards: Any) -> list[str]:
        """The shards (bands, parts) that a task owns beside the one it is called by."""
        per = steps.STEPS[step].per or ""
        return steps.result_ids_of_task(step, getattr(wildcards, per), self.variants[wildcards.variant])[1:]

    def _shards_at_once(self, step: str) -> WildcardFunction:
        return lambda wildcards: min(steps.AT_ONCE, 1 + len(self._further_results(step, wildcards)))

    def _training_threads(self, step: str) -> WildcardFunction:
        def thread_count(wildcards: Any) -> int:
            settings = self.section(wildcards, step)
            return int(settings["processes"] * settings["threads"])

        return thread_count
