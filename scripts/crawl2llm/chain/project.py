"""A run's config with all its variants: fingerprints, source files, and the path of each task's manifest.

A step's manifest is results/<variant>/<stage>/<step>/[<shard>.]manifest.json. A variant reads a step from the first variant, main or one
before it in the config, that has the same fingerprint of the step and the same content of source files. rules/common.smk asks this, and
so do commands that look at a run without Snakemake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from crawl2llm.chain import config as configuration
from crawl2llm.chain import fingerprint, shared_reference, sources, steps, yaml_errors
from crawl2llm.chain.freshness import Freshness
from crawl2llm.core import record
from crawl2llm.core.manifest import canonical
from crawl2llm.core.nested_dicts import lookup


class Project:
    """The variants of one config (`main` is the config itself), in the working directory of a run.

    held: what `sources` and `contents` are, where they were found before (a job is told what was planned). Raises ConfigError or
    InputError for a config that cannot run.
    """

    @classmethod
    def of_files(cls, files: Sequence[Path]) -> Project:
        """The project of config files, each laid over those before it (none: config.yaml). Raises ConfigError, InputError."""
        given = files or [yaml_errors.DEFAULT]
        return cls(configuration.validate(yaml_errors.laid(given), source=", ".join(map(str, given))))

    def __init__(self, config: dict[str, Any], held: list[Any] | None = None) -> None:
        self.variants = {name: configuration.of_variant(config, name) for name in ("main", *config["variants"])}
        self.fingerprints: dict[str, dict[str, str]] = {name: {} for name in self.variants}
        # The source files of every shard, and a digest of what they hold, by variant and shard.
        self.held = held or self._found()
        self.sources, self.contents = self.held
        self.freshness = {
            name: Freshness(self._place(name), self.contents[name], self.sources[name], self._place("main"))
            for name in self.variants
        }
        for name, config in self.variants.items():
            if shared_reference.KEY in config:  # what main's steps are is worked out once
                config[shared_reference.KEY].memo = self.fingerprints["main"]
                config[shared_reference.KEY].same_files = self.contents[name] == self.contents["main"]
        self._used = cache(lambda name: frozenset(steps.used(self.variants[name])))
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

    def fingerprint(self, variant: str, step: str, task: str = "") -> str:
        """The fingerprint of a step's task in a variant; only those of a model's step differ by task."""
        task = task if steps.STEPS[step].per in steps.OWN else ""
        if step == steps.COMPARE_ALL and step not in self.fingerprints[variant]:
            self.fingerprints[variant] |= self._ends()
        return fingerprint.fingerprint(step, self.variants[variant], self.fingerprints[variant], task)

    def _ends(self) -> dict[str, str]:
        """The fingerprints that report.compare depends on, of every variant, as fingerprint.ends has them."""
        return {
            f"{name}/{step} {model}".rstrip(): self.fingerprint(name, step, model)
            for name, config in self.variants.items()
            for step in fingerprint.ENDS
            for model in (steps.models(step, config) if steps.is_used(step, config) else [])
        }

    def _find_folder(self, variant: str, step: str, model: str) -> str:
        owner = next((name for name in self._before(variant) if self._same(name, variant, step, model)), variant)
        return f"results/{owner}/{step.replace('.', '/')}"

    def _before(self, variant: str) -> list[str]:
        """The variants before one in the config's order, main first."""
        names = list(self.variants)
        return names[: names.index(variant)]

    def _same(self, one: str, other: str, step: str, model: str) -> bool:
        """Whether a step's results, or those of a model, are the same in two variants."""
        # How source files are found is in no fingerprint.
        sourced = (
            step in (steps.CRAWL, steps.LIST, steps.REFERENCE, *steps.SYNTHESIZE)
            or self.contents[one] == self.contents[other]
        )
        # A step or a model may be in one of the two alone; a model, as the input of an old result, in none.
        known = sourced and all(
            step in self._used(name) and (not model or model in steps.tasks(step, self.variants[name]))
            for name in (one, other)
        )
        return known and self.fingerprint(one, step, model) == self.fingerprint(other, step, model)

    def folder(self, variant: str, step: str, task: str = "") -> str:
        """The folder of a step in a variant: that of the first variant, main or in the config's order, that has the same fingerprint and
        content of source files.
        """
        return self._folder(variant, step, task if steps.STEPS[step].per in steps.OWN else "")

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
        """The path of a manifest by its step and task; report.compare names those of other variants, `hot/evaluate.common`."""

        def place(step: str, task: str) -> Path:
            other, _, named = step.rpartition("/")
            return Path(self.manifest(other if other in self.variants else variant, named, task))

        return place

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
