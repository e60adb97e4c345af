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
from crawl2llm.chain.fingerprint import config_of_variant
from crawl2llm.chain.freshness import Freshness
from crawl2llm.core import record
from crawl2llm.core.manifest import canonical_json
from crawl2llm.core.nested_dicts import lookup


class Project:
    """The variants of one config (`main` is the config itself), in the working directory of a run.

    held: what `sources` and `contents` are, if they were found before (a job is told what was planned). Raises ConfigError or
    InputError for a config that cannot run.
    """

    @classmethod
    def from_files(cls, files: Sequence[Path]) -> Project:
        """The project of config files, each laid over those before it (none: config.yaml). Raises ConfigError, InputError."""
        config_files = files or [yaml_errors.DEFAULT]
        return cls(
            configuration.validate(yaml_errors.read_layered(config_files), source=", ".join(map(str, config_files)))
        )

    def __init__(self, config: dict[str, Any], source_state: list[Any] | None = None) -> None:
        self.variants = {name: config_of_variant(config, name) for name in ("main", *config["variants"])}
        self.fingerprints: dict[str, dict[str, str]] = {name: {} for name in self.variants}
        # The source files of every shard, and a digest of what they hold, by variant and shard.
        self.held = source_state or self._find_sources()
        self.sources, self.contents = self.held
        self.freshness = {
            name: Freshness(
                self._manifest_finder(name), self.contents[name], self.sources[name], self._manifest_finder("main")
            )
            for name in self.variants
        }
        for name, config in self.variants.items():
            if shared_reference.KEY in config:  # what main's steps are is worked out once
                config[shared_reference.KEY].memo = self.fingerprints["main"]
                config[shared_reference.KEY].same_files = self.contents[name] == self.contents["main"]
        self._used = cache(lambda name: frozenset(steps.used_steps(self.variants[name])))
        # A plan asks for the same paths for every task of a step: with 1,000 shards, a million times.
        self._folder = cache(self._find_folder)

    def _find_sources(self) -> list[Any]:
        files: dict[str, dict[str, list[str]]] = {}
        digests: dict[str, dict[str, str]] = {}
        alike: dict[str, str] = {}  # variants that read the same files: a dump's are looked at once
        for name, config in self.variants.items():
            extract = config["ingest"]["extract"]
            same_as = alike.setdefault(canonical_json([extract["sources"], extract["shards"], config["data"]]), name)
            if same_as == name:
                files[name] = sources.files_by_shard(config)
                digests[name] = {
                    shard: sources.content_digest(files[name].get(shard, [])) for shard in steps.shards(config)
                }
            files[name], digests[name] = files[same_as], digests[same_as]
        return [files, digests]

    def fingerprint(self, variant: str, step: str, task: str = "") -> str:
        """The fingerprint of a step's task in a variant; only those of a model's step differ by task."""
        task = task if steps.STEPS[step].per in steps.WITH_OWN_SETTINGS else ""
        if step == steps.COMPARE_ALL and step not in self.fingerprints[variant]:
            self.fingerprints[variant] |= self._compared_fingerprints()
        return fingerprint.fingerprint(step, self.variants[variant], self.fingerprints[variant], task)

    def _compared_fingerprints(self) -> dict[str, str]:
        """The fingerprints that report.compare depends on, of every variant, as `fingerprint.compared_digests` has them."""
        return {
            f"{name}/{step} {model}".rstrip(): self.fingerprint(name, step, model)
            for name, config in self.variants.items()
            for step in fingerprint.COMPARED_STEPS
            for model in (steps.task_models(step, config) if steps.is_used(step, config) else [])
        }

    def _find_folder(self, variant: str, step: str, model: str) -> str:
        owner = next(
            (name for name in self._variants_before(variant) if self._has_same_results(name, variant, step, model)),
            variant,
        )
        return f"results/{owner}/{step.replace('.', '/')}"

    def _variants_before(self, variant: str) -> list[str]:
        """The variants before one in the config's order, main first."""
        names = list(self.variants)
        return names[: names.index(variant)]

    def _has_same_results(self, variant: str, other: str, step: str, model: str) -> bool:
        """Whether a step's results, or those of a model, are the same in two variants."""
        # How source files are found is in no fingerprint.
        sourced = (
            step in (steps.CRAWL, steps.LIST, steps.REFERENCE, *steps.SYNTHESIZE)
            or self.contents[variant] == self.contents[other]
        )
        # A step or a model may be in one of the two alone; a model, as the input of an old result, in none.
        exists_in_both = sourced and all(
            step in self._used(name) and (not model or model in steps.task_ids(step, self.variants[name]))
            for name in (variant, other)
        )
        return exists_in_both and self.fingerprint(variant, step, model) == self.fingerprint(other, step, model)

    def step_folder(self, variant: str, step: str, task: str = "") -> str:
        """The folder of a step in a variant: that of the first variant, main or in the config's order, that has the same fingerprint and
        content of source files.
        """
        return self._folder(variant, step, task if steps.STEPS[step].per in steps.WITH_OWN_SETTINGS else "")

    def manifest_path(self, variant: str, step: str, task: str = "") -> str:
        """The path of a task's manifest."""
        folder = self.step_folder(variant, step, task)
        return f"{folder}/{task}.manifest.json" if task else f"{folder}/manifest.json"

    def seed_manifests(self, variant: str, step: str) -> list[str]:
        """The manifests of corpus.write, of variants of this run, that the `seeds` of a step of synthesize name.

        What they hold is in its fingerprint. They are its inputs too, so that it does not read a corpus while that is made again.
        """
        folders = {Path(folder).resolve() for folder in lookup(self.variants[variant], step)["seeds"]["corpus"]}
        corpus_step = "corpus.write"
        return [
            self.manifest_path(name, corpus_step, task)
            for name, config in (self.variants.items() if folders else [])
            if Path(self.step_folder(name, corpus_step)).resolve() in folders
            and self.step_folder(name, corpus_step).split("/")[1] == name
            for task in steps.task_ids(corpus_step, config)
        ]

    def _manifest_finder(self, variant: str) -> Callable[[str, str], Path]:
        """The path of a manifest by its step and task; report.compare names those of other variants, `hot/evaluate.common`."""

        def find_manifest(step: str, task: str) -> Path:
            prefix, _, step_name = step.rpartition("/")
            return Path(self.manifest_path(prefix if prefix in self.variants else variant, step_name, task))

        return find_manifest

    def why_stale(self, variant: str, step: str, tasks: list[str]) -> str | None:
        """Why the result of a Snakemake task, which owns these tasks, is not up to date, in words; None if it is.

        None too if there is no manifest: Snakemake makes it where something needs it. But a step that was deleted leaves no
        record, and one that has a record was begun.
        """
        path = Path(self.manifest_path(variant, step, tasks[0]))
        if not path.exists():
            return "begun, and not finished" if record.path_of(path).exists() else None
        return self.freshness[variant].why_stale(step, tasks, self.fingerprint(variant, step, tasks[0]))

    def replaces_results(self, variant: str, step: str, tasks: list[str]) -> bool:
        """Whether one of these tasks has a result of other settings or code, which a run would replace."""
        return self.freshness[variant].has_other_fingerprint(step, tasks, self.fingerprint(variant, step, tasks[0]))
