"""The inputs of the rules: functions of a job's wildcards that give paths of manifests.

An input is what a job waits for. On the command line the manifests of all shards are one word (`words_of`): one that spelled out thousands
of paths would be longer than the kernel takes. A step that a rule names among its `params` is on the command line alone: another input
already waits for it, and with 1,000 shards every edge costs a plan seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from crawl2llm.chain import filter_order, halving, model_registry, steps
from crawl2llm.chain.project import Project
from crawl2llm.chain.step import DOCUMENTS, EDITS_BEFORE, VERDICTS_BEFORE, stage_of

InputFunction = Callable[[Any], list[str]]  # of the wildcards
MAIN = "main"


class RuleInputs:
    """The input functions of a project's rules. Each gives none of a step that the variant of the wildcards does not have.

    Snakemake takes functions for functions, and not objects that can be called.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.variants = project.variants
        self._ranged: dict[Any, InputFunction] = {}  # input function → the same as few words
        self._ranges = cache(self._find_ranges)  # a plan asks for them for every task
        self._paths = cache(self._find_paths)

    def words_of(self, value: Any, wildcards: Any) -> list[str] | str:
        """What a rule names among its inputs or params as words of a command line: ranges of an input function, else the value itself."""
        words = self._ranged.get(value, value)(wildcards) if callable(value) else value
        return list(words) if isinstance(words, list | tuple) else str(words)

    def manifest(self, *names: str) -> InputFunction:
        """Those of the task with the same shard (band, part, model); of a step with one task, that."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            config = self.variants[wildcards.variant]
            used = [step for step in names if steps.is_used(step, config)]
            return [self._path_of_same_task(wildcards, step) for step in used]

        return self._input_function(find)

    def manifests(self, *names: str) -> InputFunction:
        """Those of all tasks of the steps."""
        return self._input_function(lambda wildcards, ranged: self._of_used(wildcards.variant, names, ranged))

    def manifests_if_needed(self, *names: str, by: str) -> InputFunction:
        """Those of the same shard, or of all, of those of the steps that another, `by`, reads: some are read only where the config says."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            task = getattr(wildcards, steps.STEPS[by].per or "", "")
            needed = steps.needed_steps(by, self.variants[wildcards.variant], task)
            return self._of_same_shard(wildcards, [step for step in names if step in needed], ranged)

        return self._input_function(find)

    def manifests_read_by(self, step: str) -> InputFunction:
        """Those of every step that a one-task step reads by the table of steps."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            return self._of_same_shard(wildcards, steps.needed_steps(step, self.variants[wildcards.variant]), ranged)

        return self._input_function(find)

    def manifests_of_main(self, *names: str) -> InputFunction:
        """Those of all tasks of the steps in main, whichever variant reads them."""
        return self._input_function(lambda wildcards, ranged: self._of_used(MAIN, names, ranged))

    def verdicts_before(self, stage: str) -> InputFunction:
        """The newest verdicts before a filter, of the filter before it in the config's `filters` or of ingest.check."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            names = filter_order.verdict_steps(self._filters(wildcards), stage)[-1:]
            return self._of_same_shard(wildcards, names, ranged)

        return self._input_function(find)

    def scored_texts(self, step: str) -> dict[str, InputFunction]:
        """What the score step of an ordinary filter reads, by the names of its program's options."""
        stage = stage_of(step)
        functions = {
            "documents": (DOCUMENTS, self.manifest(DOCUMENTS)),
            "verdicts": (VERDICTS_BEFORE, self.verdicts_before(stage)),
            "edits": (EDITS_BEFORE, self.edits(stage)),
            "languages": ("language.score", self.manifest("language.score")),
        }
        return {name: find for name, (need, find) in functions.items() if need in steps.STEPS[step].needs}

    def verdicts(self) -> InputFunction:
        """All verdicts, in the order of the filters."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            return self._of_same_shard(wildcards, filter_order.verdict_steps(self._filters(wildcards)), ranged)

        return self._input_function(find)

    def edits(self, stage: str | None = None) -> InputFunction:
        """Those of the steps before a filter that edit texts; without a filter: of all of them."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            return self._of_same_shard(wildcards, filter_order.edit_steps(self._filters(wildcards), stage), ranged)

        return self._input_function(find)

    def edits_of_main(self) -> InputFunction:
        """Those of the steps of main that edit texts."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            names = filter_order.edit_steps(filter_order.used_filters(self.variants[MAIN]))
            return self._of_used(MAIN, names, ranged)

        return self._input_function(find)

    def model(self) -> InputFunction:
        """That of the model that the wildcards name."""
        return self._input_function(lambda wildcards, ranged: [self._path_of_model(wildcards, wildcards.model)])

    def tokens(self, by: str = "") -> InputFunction:
        """Those of all tasks that encode the corpus in the tokens of the model that the wildcards name.

        by: a step that reads them only where the config says so.
        """

        def find(wildcards: Any, ranged: bool) -> list[str]:
            config = self.variants[wildcards.variant]
            step = model_registry.tokens_step(config, wildcards.model)
            if by and step not in steps.needed_steps(by, config, wildcards.model):
                return []
            if step == model_registry.REENCODE_STEP:
                return [
                    self.project.manifest_path(wildcards.variant, step, model_registry.root(config, wildcards.model))
                ]
            return self._of_step(wildcards.variant, step, ranged)

        return self._input_function(find)

    def parent(self) -> InputFunction:
        """That of the model that the one that the wildcards name is made from."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            name = model_registry.parent(self.variants[wildcards.variant], wildcards.model)
            return [self._path_of_model(wildcards, name)]

        return self._input_function(find)

    def other_parents(self) -> InputFunction:
        """Those of the further models that the one that the wildcards name is made from."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            names = model_registry.other_parents(self.variants[wildcards.variant], wildcards.model)
            return [self._path_of_model(wildcards, name) for name in names]

        return self._input_function(find)

    def written_teacher(self) -> InputFunction:
        """That of the task of compress.teach which wrote what this teacher says; none where the teacher itself is asked."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            config = self.variants[wildcards.variant]
            reads_it = model_registry.reads_written_teacher(config, wildcards.model)
            names = model_registry.teachers(config, wildcards.model) if reads_it else []
            return [self.project.manifest_path(wildcards.variant, model_registry.TEACH_STEP, name) for name in names]

        return self._input_function(find)

    def lineage(self, step: str | None = None) -> InputFunction:
        """Those of the models that an export is made from, the nearest first; of a step: those of its tasks for them, and for the
        untrained one.
        """

        def find(wildcards: Any, ranged: bool) -> list[str]:
            names = model_registry.lineage(self.variants[wildcards.variant], wildcards.model)
            if step:
                return [self.project.manifest_path(wildcards.variant, step, name) for name in names]
            return [self._path_of_model(wildcards, name) for name in names if name != model_registry.UNTRAINED]

        return self._input_function(find)

    def reward_models(self, step: str) -> InputFunction:
        """Those of the models of a step that score the answers of the model that the wildcards name."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            names = model_registry.reward_models(self.variants[wildcards.variant], wildcards.model)
            return [self.project.manifest_path(wildcards.variant, step, name) for name in names]

        return self._input_function(find)

    def answering_model(self) -> InputFunction:
        """That of the model whose answers align.pairs judges; none if its `from` is null."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            name = self.variants[wildcards.variant]["align"]["pairs"]["from"]
            return [self._path_of_model(wildcards, name)] if name else []

        return self._input_function(find)

    def rung_before(self) -> InputFunction:
        """Those of all contenders at the rung before that of the wildcards; none at the first."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            tasks = halving.tasks_before(wildcards.contender, self.variants[wildcards.variant])
            return [self.project.manifest_path(wildcards.variant, steps.RUNG, task) for task in tasks]

        return self._input_function(find)

    def seed_corpora(self, step: str) -> InputFunction:
        """The corpora of this run that the seeds of a step of synthesize are taken from."""
        return self._input_function(lambda wildcards, ranged: self.project.seed_manifests(wildcards.variant, step))

    def manifests_for_report(self) -> InputFunction:
        """Those of every step of the run that its report shows."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            used = steps.used_steps(self.variants[wildcards.variant])
            return self._of_used(wildcards.variant, [step for step in used if step not in steps.NOT_IN_REPORT], ranged)

        return self._input_function(find)

    def manifests_of_all_variants(self, *names: str) -> InputFunction:
        """Those of all tasks of steps in every variant that has them."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            paths = (path for step in names for variant in self.variants for path in self._of_used(variant, [step]))
            return list(dict.fromkeys(paths))

        return self._input_function(find)

    def join_inputs(self, *functions: InputFunction) -> InputFunction:
        """Those of several input functions, as one input."""

        def find(wildcards: Any, ranged: bool) -> list[str]:
            finders = [self._ranged[function] if ranged else function for function in functions]
            return [path for find_manifests in finders for path in find_manifests(wildcards)]

        return self._input_function(find)

    def _input_function(self, find: Callable[[Any, bool], list[str]]) -> InputFunction:
        """`find` as a function of the wildcards alone. ranged: as few words."""

        def manifest_paths(wildcards: Any) -> list[str]:
            return find(wildcards, False)

        def manifest_words(wildcards: Any) -> list[str]:
            return find(wildcards, True)

        self._ranged[manifest_paths] = manifest_words
        return manifest_paths

    def _filters(self, wildcards: Any) -> list[str]:
        return filter_order.used_filters(self.variants[wildcards.variant])

    def _path_of_same_task(self, wildcards: Any, step: str) -> str:
        per = steps.STEPS[step].per
        return self.project.manifest_path(wildcards.variant, step, getattr(wildcards, per) if per else "")

    def _path_of_model(self, wildcards: Any, name: str | None) -> str:
        config = self.variants[wildcards.variant]
        return self.project.manifest_path(wildcards.variant, *model_registry.making_task(config, name or ""))

    def _of_same_shard(self, wildcards: Any, names: Iterable[str], ranged: bool) -> list[str]:
        """The manifests of steps: of the same shard where both have shards, else of all."""
        paths = []
        for step in names:
            if steps.STEPS[step].per and hasattr(wildcards, "shard"):
                paths.append(self.project.manifest_path(wildcards.variant, step, wildcards.shard))
            else:
                paths += self._of_step(wildcards.variant, step, ranged)
        return paths

    def _of_used(self, variant: str, names: Iterable[str], ranged: bool = False) -> list[str]:
        """The manifests of all tasks of those of the steps that a variant has."""
        used = (step for step in names if steps.is_used(step, self.variants[variant]))
        return [path for step in used for path in self._of_step(variant, step, ranged)]

    def _of_step(self, variant: str, step: str, ranged: bool) -> list[str]:
        return self._ranges(variant, step) if ranged else self._paths(variant, step)

    def _find_paths(self, variant: str, step: str) -> list[str]:
        tasks = steps.task_ids(step, self.variants[variant])
        return [self.project.manifest_path(variant, step, task) for task in tasks]

    def _find_ranges(self, variant: str, step: str) -> list[str]:
        """The manifests of all results of the step as few words: `results/…/{00000..00999}.manifest.json`, which programs expand."""
        ids = steps.result_ids(step, self.variants[variant])
        paths = [self.project.manifest_path(variant, step, task) for task in ids]
        if steps.STEPS[step].per not in steps.NUMBERED or len(paths) == 1:
            return paths
        return [f"{Path(paths[0]).parent}/{{{ids[0]}..{ids[-1]}}}.manifest.json"]
