"""A run's config with all its variants: fingerprints, source files, and the path of each task's manifest.

A step's manifest is results/<variant>/<stage>/<step>/[<shard>.]manifest.json. A variant reads a step from `main` when the step's
fingerprint and what the source files hold are the same there. rules/common.smk asks this, and so do commands that look at a run
without Snakemake.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from scripts.align import checks as aligning
from scripts.compress import accepts, quantize_tools
from scripts.compress import checks as quantizing
from scripts.finetune import layouts
from scripts.finetune import settings as finetuning
from scripts.ingest import sources
from scripts.language import labels
from scripts.models import registry
from scripts.pretrain import checks, gpus, mix_shares, origin, sizes
from scripts.pretrain.parameters import FAMILIES
from scripts.quality import scorers
from scripts.synthesize import checks as synthesizing
from scripts.workflow import config as configuration
from scripts.workflow import contents, fingerprint, record, steps
from scripts.workflow.errors import InputError
from scripts.workflow.freshness import Freshness
from scripts.workflow.manifest import canonical
from scripts.workflow.trees import lookup


class Project:
    """The variants of one config (`main` is the config itself), in the working directory of a run.

    held: what `sources` and `contents` are, where they were found before (a job is told what was planned). Raises ConfigError or
    InputError for a config that cannot run.
    """

    def __init__(self, config: dict[str, Any], held: list[Any] | None = None) -> None:
        self.variants = {name: configuration.of_variant(config, name) for name in ("main", *config["variants"])}
        self._fingerprints: dict[str, dict[str, str]] = {name: {} for name in self.variants}
        # The source files of every shard, and a digest of what they hold, by variant and shard.
        self.held = held or self._found()
        self.sources, self.contents = self.held
        self.freshness = {
            name: Freshness(self._place(name), self.contents[name], self.sources[name]) for name in self.variants
        }
        # A plan asks for the same paths for every task of a step: with 1,000 shards, a million times.
        self._folder = cache(self._find_folder)

    def _found(self) -> list[Any]:
        files: dict[str, dict[str, list[str]]] = {}
        held: dict[str, dict[str, str]] = {}
        alike: dict[str, str] = {}  # variants that read the same files: a dump's are looked at once
        for name, config in self.variants.items():
            extract = config["ingest"]["extract"]
            like = alike.setdefault(canonical([extract["sources"], extract["shards"], config["data"]]), name)
            if like == name:
                files[name] = sources.by_shard(config)
                held[name] = {shard: sources.content(files[name].get(shard, [])) for shard in steps.shards(config)}
            files[name], held[name] = files[like], held[like]
        return [files, held]

    def check(self) -> None:
        """What can be refused before anything runs, and every fingerprint. Raises ConfigError or InputError."""
        for name, config in self.variants.items():
            if "language" in config["filters"]:
                labels.check(config["language"])
            labels.check_by_language(config)
            train = config["pretrain"]["train"]
            checks.check(train, train["processes"] * train["nodes"])
            check_lengths(config)
            check_mix(config)
            check_curve(config)
            check_judge(config)
            check_decontaminated(config)
            check_tuning(config)
            accepts.check(config)
            quantize_tools.check(config)
            quantize_tools.check_shapes(config)
            quantizing.check(config)
            scorers.check(config)
            model, vocabulary = config["pretrain"]["train"]["model"], config["tokenize"]["train"]["vocabulary"]
            if model["size"] is not None and isinstance(vocabulary, int):
                sizes.fill(model, vocabulary)
            if config["pretrain"]["plan"]["gpu"] is not None:
                gpus.chosen(config["pretrain"]["plan"], "auto")
            layouts.check(config["finetune"]["pairs"])
            synthesizing.check(config, Path(f"results/{name}"))
            finetuning.check(config)
            aligning.check(config)
            start_from, own = config["pretrain"]["train"]["start_from"], Path(f"results/{name}/pretrain/train")
            if start_from and Path(start_from).resolve().is_relative_to(own.resolve()):
                raise configuration.ConfigError(
                    f"pretrain.train.start_from is {start_from!r}, the result that this run would replace: copy the folder to "
                    "another place, and name that"
                )
            origin.check(config["pretrain"]["train"], vocabulary)
            if wrong := steps.wrong_order(config["filters"]):
                raise configuration.ConfigError(wrong if name == "main" else f"variants.{name}: {wrong}")
            for step in steps.used(config):
                for task in steps.models(step, config):
                    self.fingerprint(name, step, task)
        contents.save()
        fingerprint.save()

    def fingerprint(self, variant: str, step: str, task: str = "") -> str:
        """The fingerprint of a step's task in a variant; only those of a model's step differ by task."""
        task = task if steps.STEPS[step].per == "model" else ""
        return fingerprint.fingerprint(step, self.variants[variant], self._fingerprints[variant], task)

    def _find_folder(self, variant: str, step: str, model: str) -> str:
        # How source files are found is in no fingerprint.
        same = step in (steps.CRAWL, steps.LIST, *steps.SYNTHESIZE) or self.contents[variant] == self.contents["main"]
        # A step or a model may be in one of the two alone; a model, as the input of an old result, in none.
        known = steps.is_used(step, self.variants["main"]) and (
            not model or all(model in steps.tasks(step, self.variants[name]) for name in (variant, "main"))
        )
        owner = (
            "main"
            if same and known and self.fingerprint(variant, step, model) == self.fingerprint("main", step, model)
            else variant
        )
        return f"results/{owner}/{step.replace('.', '/')}"

    def folder(self, variant: str, step: str, task: str = "") -> str:
        """The folder of a step in a variant: main's, where its fingerprint and the source files' content are the same there."""
        return self._folder(variant, step, task if steps.STEPS[step].per == "model" else "")

    def manifest(self, variant: str, step: str, task: str = "") -> str:
        """The path of a task's manifest."""
        folder = self.folder(variant, step, task)
        return f"{folder}/{task}.manifest.json" if task else f"{folder}/manifest.json"

    def seeding(self, variant: str, step: str) -> list[str]:
        """The manifests of corpus.write, of variants of this run, that the `seeds` of a step of synthesize name.

        What they hold is in its fingerprint. They are its inputs too, so that it does not read a corpus while that is made again.
        """
        named = {Path(folder).resolve() for folder in lookup(self.variants[variant], step)["seeds"]["corpus"]}
        made = "corpus.write"
        return [
            self.manifest(name, made, task)
            for name, config in (self.variants.items() if named else [])
            if Path(self.folder(name, made)).resolve() in named and self.folder(name, made).split("/")[1] == name
            for task in steps.tasks(made, config)
        ]

    def _place(self, variant: str) -> Callable[[str, str], Path]:
        return lambda step, task: Path(self.manifest(variant, step, task))

    def stale(self, variant: str, step: str, tasks: list[str]) -> str | None:
        """Why the result of a Snakemake task, which owns these tasks, is not up to date, in words; None where it is.

        None too where there is no manifest: Snakemake makes it where something needs it. But a step that was deleted leaves no
        record, and one that has a record was begun.
        """
        path = Path(self.manifest(variant, step, tasks[0]))
        if not path.exists():
            return "begun, and not finished" if record.beside(path).exists() else None
        return self.freshness[variant].stale(step, tasks, self.fingerprint(variant, step, tasks[0]))

    def replaces(self, variant: str, step: str, tasks: list[str]) -> bool:
        """Whether one of these tasks has a result of other settings or code, which a run would replace."""
        return self.freshness[variant].other(step, tasks, self.fingerprint(variant, step, tasks[0]))


def tuned(config: dict[str, Any]) -> list[tuple[str, str]]:
    """(step, model) of every model that is trained on pairs."""
    return [
        (step, name)
        for step in ("finetune.train", "align.reward", "align.train")
        for name in registry.made_by(config, step)
    ]


def check_lengths(config: dict[str, Any]) -> None:
    """Raise InputError for pairs that are longer than the context that the model is pre-trained with."""
    model = config["pretrain"]["train"]["model"]
    known = model["type"] in FAMILIES and isinstance(model["context"], int)
    for step, name in tuned(config) if known else []:
        length = registry.section(config, step, name)["max_length"]
        if length > model["context"]:
            key = registry.key(config, step, name, "max_length")
            raise InputError(f"{key} is {length:,}, more than pretrain.train.model.context, {model['context']:,}")


def check_mix(config: dict[str, Any]) -> None:
    """Raise InputError for a mix that no corpus goes with, as far as the config says which groups there are."""
    mix = config["pretrain"]["mix"]
    mix_shares.check(mix, config["pretrain"]["train"]["schedule"])
    if not mix["phases"]:
        return
    if mix["by"] in steps.MIXED_BY and not steps.is_used(steps.MIXED_BY[mix["by"]], config):
        raise InputError(
            f"pretrain.mix.by is {mix['by']!r}, which {steps.MIXED_BY[mix['by']]} measures, and filters is {config['filters']!r}: add "
            "it there"
        )
    if mix["by"] == "source":
        names = sorted(source["name"] for source in config["ingest"]["extract"]["sources"])
        mix_shares.check_names(mix, names)


def check_curve(config: dict[str, Any]) -> None:
    """Raise InputError for a learning curve whose checkpoints the training would remove."""
    every, kept = config["evaluate"]["curve"]["every"], config["pretrain"]["train"]["keep_every"]
    if every and (not kept or every % kept):
        raise InputError(
            f"evaluate.curve.every is {every}, and pretrain.train.keep_every, which is {kept}, keeps no checkpoint of these steps: set "
            f"it to {every} or to a divisor (a placement key: by itself it reruns nothing)"
        )


def check_judge(config: dict[str, Any]) -> None:
    """Raise InputError for a judge without answers."""
    judge = config["evaluate"]["judge"]["model"]
    if judge is not None and not config["evaluate"]["generate"]["questions"]:
        raise InputError(
            f"evaluate.judge.model is {judge!r}, and evaluate.generate.questions is 0: there are no answers to judge"
        )


def check_decontaminated(config: dict[str, Any]) -> None:
    """Raise ConfigError for a run that would be evaluated on tasks that its text may hold, unless the config says that it shall be."""
    tasks = steps.searched(config)
    if (tasks or config["decontaminate"]["index"]["files"]) and steps.DECONTAMINATE not in config["filters"]:
        what = f"evaluate.public.presets is {tasks!r}" if tasks else "decontaminate.index.files is set"
        raise configuration.ConfigError(
            f"{what}, and filters, which is {config['filters']!r}, lacks decontaminate: the training text may hold the questions. Add it "
            "as the last filter, or set decontaminate.index.tasks to [] (and no files) to evaluate without it"
        )


def check_tuning(config: dict[str, Any]) -> None:
    """Raise InputError for a training on pairs whose engine or architecture cannot do what it is asked for."""
    kind = config["pretrain"]["train"]["model"]["type"]
    for step, name in tuned(config):
        settings, where = registry.section(config, step, name), partial(registry.where, config, step, name)
        checks.saving(settings, where("engine", "async_checkpoints"))
        if "adapter" in settings:
            checks.adapter(settings, where("engine", "adapter"))
        if step == "finetune.train":
            checks.packing(settings, kind, where("packing"))
