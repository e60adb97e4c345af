"""The steps of the workflow in order, what each reads, and how many tasks it has.

Each stage and each filter declares its own in its `steps.py` (chain/step.py says how); here they are collected by name. The rules name
the same edges as inputs; `tests/workflow/test_steps.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

from crawl2llm.chain import halving, model_registry, shared_reference
from crawl2llm.chain.filter_order import FILTERS, edit_steps, filters_before, used_filters, verdict_steps
from crawl2llm.chain.model_registry import EXPORT_STEP, MAKERS, REWARD_STEP
from crawl2llm.chain.stage_names import AFTER_FILTERS, BEFORE_FILTERS, PLUGIN_FILTERS, package_of
from crawl2llm.chain.step import (
    ALL_SCORES,
    ALL_VERDICTS,
    EDITS_BEFORE,
    LANGUAGES,
    LANGUAGES_BEFORE,
    VERDICTS_BEFORE,
    Config,
    Step,
    skipped_by,
    stage_of,
)
from crawl2llm.core.errors import InputError


def _steps_of_stages(stages: Sequence[str]) -> dict[str, Step]:
    return {
        name: step for stage in stages for name, step in import_module(f"crawl2llm.stages.{stage}.steps").STEPS.items()
    }


def whole_name(need: str, filter_name: str) -> str:
    """`url.score` of `.score`, as the filter `url` names its own step."""
    return filter_name + need if need.startswith(".") else need


def _steps_of_filters() -> dict[str, Step]:
    """Those of all filters, by their whole names."""
    return {
        f"{name}.{step}": replace(
            facts,
            needs=tuple(whole_name(need, name) for need in facts.needs),
            inputs={
                option: whole_name(needs, name) if isinstance(needs, str) else needs
                for option, needs in facts.inputs.items()
            },
        )
        for name, spec in FILTERS.items()
        for step, facts in spec.steps.items()
    }


def _collect_steps() -> dict[str, Step]:
    """All steps, in order: as they are declared, except for those that follow a step of another stage."""
    declared = {**_steps_of_stages(BEFORE_FILTERS), **_steps_of_filters(), **_steps_of_stages(AFTER_FILTERS)}
    order = [name for name, step in declared.items() if not step.follows]
    for name, step in declared.items():
        if step.follows:
            order.insert(order.index(step.follows) + 1, name)
    return {name: declared[name] for name in order}


STEPS = _collect_steps()


def collect_again() -> None:
    """Bring STEPS up to date with FILTERS, which plug-ins are added to."""
    steps = _collect_steps()
    STEPS.clear()
    STEPS.update(steps)


# Steps that other modules name:
CRAWL = "crawl.render"
SYNTHESIZE = ("synthesize.rephrase", "synthesize.seed")
LIST = "ingest.list"
FETCH = "ingest.fetch"
REFERENCE = "corpus.reference"
MIX = "pretrain.mix"
PACK = "pretrain.pack"
PLAN = "pretrain.plan"
RUNG = "pretrain.rung"
HALVE = "pretrain.halve"
COMMON = "evaluate.common"
WHATIF = "report.whatif"
INSPECT = "report.inspect"
REPORT_STEP = "report.render"  # made again where anything else is
COMPARE_ALL = "report.compare"  # used by main where the run has variants; reads REPORT_STEP and COMMON of every variant
PAGES = (REPORT_STEP, COMPARE_ALL)  # show results, and are none
# No variant's report waits for these, or to add a variant would make main's again:
NOT_IN_REPORT = (COMMON, REPORT_STEP, COMPARE_ALL)
PLUGIN_PROGRAM = "crawl2llm.filters.framework.plugin"  # of every step of a plug-in
TASKS = 256  # most tasks of a sharded step: with more shards, a task owns several (few, fat tasks)
AT_ONCE = 8  # shards that a task does at the same time, where the profile's set-threads does not say otherwise; fewer make no second task
WITH_OWN_SETTINGS = ("model", "contender")  # wildcards whose tasks have settings, and so a fingerprint, of their own
NUMBERED = ("shard", "band", "part")  # wildcards whose results are numbered, and of which a task may own several


def program_of(step: str) -> str:
    """The module that is a step's program, such as `crawl2llm.filters.url.score`."""
    if stage_of(step) in PLUGIN_FILTERS:
        return PLUGIN_PROGRAM
    return f"crawl2llm.{package_of(stage_of(step))}.{step}"


def program_words(step: str) -> list[str]:
    """The module that is a step's program, and what goes before its options."""
    return [program_of(step), step] if program_of(step) == PLUGIN_PROGRAM else [program_of(step)]


def rule_of(step: str) -> str:
    """`language_score` of `language.score`."""
    return step.replace(".", "_")


def step_of(rule: str) -> str:
    """`language.score` of `language_score`."""
    return rule.replace("_", ".", 1)


def folder_of(step: str) -> Path:
    """`language/score`: a step's folder below those of a variant's results, logs and benchmark files."""
    return Path(*step.split("."))


def resolve_needs(step: str, filters: Sequence[str], of_main: bool = False) -> tuple[str, ...]:
    """The steps that `step` reads from where a run uses these filters in this order; none of a filter that it does not use.

    of_main: those that it reads from of `main`, whose filters these are.
    """
    until = stage_of(step)
    by_filters = {
        VERDICTS_BEFORE: lambda: verdict_steps(filters, until)[-1:],
        EDITS_BEFORE: lambda: edit_steps(filters, until),
        ALL_VERDICTS: lambda: verdict_steps(filters),
        ALL_SCORES: lambda: [f"{name}.score" for name, spec in FILTERS.items() if "score" in spec.steps],
        LANGUAGES_BEFORE: lambda: [LANGUAGES] if "language" in filters_before(filters, until) else [],
    }
    facts = STEPS[step]
    names = [
        name
        for need in (facts.common if of_main else facts.needs)
        for name in (by_filters[need]() if need in by_filters else [need])
    ]
    present = (name for name in names if stage_of(name) not in FILTERS or stage_of(name) in filters)
    return tuple(dict.fromkeys(present))


def is_used(step: str, config: Config) -> bool:
    """Whether a run has a step: not that of a filter that it does not use, nor one that nothing asks for."""
    stage = stage_of(step)
    return (stage not in FILTERS or stage in used_filters(config)) and STEPS[step].is_used(config)


def is_read(need: str, step: str, config: Config, task: str = "") -> bool:
    """Whether a step reads another that it names among its needs: some are read only where the config asks for it."""
    return is_used(need, config) and STEPS[step].reads(need, config, task)


def used_steps(config: Config) -> list[str]:
    """The steps of a run, in order."""
    return [step for step in STEPS if is_used(step, config)]


def needed_steps(step: str, config: Config, task: str = "") -> tuple[str, ...]:
    """The steps that `step` reads from under this config.

    Of the steps that make models, those that make what is read.
    """
    facts = STEPS[step]
    needs = resolve_needs(step, used_filters(config))
    names = tuple(name for name in needs if is_read(name, step, config, task))
    if facts.models_read or (facts.per == "model" and set(MAKERS) & set(needs)):
        makers = {model_registry.making_task(config, model)[0] for model in models_read(step, config, task)}
        rest = tuple(name for name in names if name not in MAKERS)
        names = tuple(name for name in MAKERS if name in makers and is_used(name, config)) + rest
    return names


def needed_steps_of_main(step: str, config: Config) -> tuple[str, ...]:
    """The steps that `step` reads from of `main`, whichever variant this config is of."""
    main = shared_reference.main_or_own_config(config)
    return tuple(name for name in resolve_needs(step, used_filters(main), of_main=True) if is_used(name, main))


def is_of_main(step: str, need: str) -> bool:
    """Whether what `step` reads of `need` is main's, in every variant."""
    facts = STEPS.get(step, Step())
    return bool(facts.common) and need not in facts.needs


def models_read(step: str, config: Config, task: str) -> list[str]:
    """The models that a task reads: those that its step declares; an evaluation its own, or all without a task; a step that makes one
    its parents, or `base`, and the reward models that judge its answers.
    """
    facts = STEPS[step]
    if facts.models_read:
        return facts.models_read(config, task)
    if facts.tasks:
        return [task] if task else facts.tasks(config)
    return [
        model_registry.parent(config, task) or model_registry.BASE if task else model_registry.BASE,
        *model_registry.other_parents(config, task),
        *model_registry.reward_models(config, task),
    ]


def upstream_tasks(step: str, config: Config, task: str = "") -> list[tuple[str, str]]:
    """(step, task) of all that a task reads from; the task is a model's name, and "" of a step that has no task for each model."""
    all_models = [
        *model_registry.evaluated_models(config),
        *(name for maker in (EXPORT_STEP, REWARD_STEP) for name in model_registry.models_made_by(config, maker)),
    ]
    facts = STEPS[step]
    read = models_read(step, config, task) if facts.per == "model" or facts.models_read else all_models
    pairs = []
    for name in needed_steps(step, config, task):
        of_models, wanted = STEPS[name].per == "model", read
        if name == model_registry.REENCODE_STEP:
            wanted = [model_registry.root(config, model) for model in read]
        pairs += [(name, model) for model in task_models(name, config) if not of_models or model in wanted]
    before = halving.tasks_before(task, config) if facts.per == "contender" else []
    return pairs + [(step, contender) for contender in before]


def extra_settings(step: str, config: Config, task: str = "") -> Config:
    """The settings that a step's task gets beside its own, under a complete config."""
    facts = STEPS[step]
    exempt = {"skipped_by": skipped_by(step, config)} if facts.exempts else {}
    return {**facts.extra_settings(config, task), **exempt}


@cache
def _padded_numbers(count: int, digits: int) -> tuple[str, ...]:
    """Zero-padded numbers from 0: a plan over 4,096 shards asks for them thousands of times."""
    return tuple(f"{number:0{digits}d}" for number in range(count))


def shards(config: Config) -> list[str]:
    """The zero-padded shard numbers."""
    return list(_padded_numbers(config["ingest"]["extract"]["shards"], 5))


def bands(config: Config) -> list[str]:
    """The zero-padded band numbers."""
    return list(_padded_numbers(config["dedup"]["signature"]["bands"], 2))


def number_of_parts(shards: int) -> int:
    """Into how many parts candidate pairs are dealt out, so that no task measures them all; a corpus of few shards has one."""
    return min(TASKS, max(1, shards // 8))


def parts(config: Config) -> list[str]:
    """The zero-padded numbers of the parts of candidate pairs."""
    return [f"{number:03d}" for number in range(number_of_parts(len(shards(config))))]


def max_tasks(step: str, config: Config) -> int:
    """The most tasks of a step by shard, band or part. A corpus of few shards has few: a task of 8 shards starts once, not 8 times."""
    number = len(shards(config))
    limits = {"shard": -(-number // AT_ONCE), "band": max(1, number // 2)}
    return min(TASKS, limits.get(STEPS[step].per or "", number))


def result_ids(step: str, config: Config) -> list[str]:
    """The ids of a step's results, one manifest each: shard, band or part numbers, model names, or [""] for a one-task step."""
    per, tasks = STEPS[step].per, STEPS[step].tasks
    if tasks:
        return tasks(config)
    if per == "model":
        return model_registry.models_made_by(config, step)
    numbered = {"shard": shards, "band": bands, "part": parts}
    return numbered[per](config) if per else [""]


def task_ids(step: str, config: Config) -> list[str]:
    """The task ids of a step: with more shards (bands) than tasks, each is called by the first that it owns."""
    ids = result_ids(step, config)
    return ids[: max_tasks(step, config)] if STEPS[step].per in NUMBERED else ids


def task_models(step: str, config: Config) -> list[str]:
    """The models (contenders) that a step has a task for each of; [""] of any other step, whose tasks all have the same settings."""
    return result_ids(step, config) if STEPS[step].per in WITH_OWN_SETTINGS else [""]


def result_ids_of_task(step: str, task: str, config: Config) -> list[str]:
    """The ids of the results that one task makes: of all shards (bands) that it owns, every `most`-th from its first.

    Raises InputError for an id that no task is called by: it does not exist, or two tasks would write the same files.
    """
    if STEPS[step].per not in NUMBERED:
        return [task]
    ids, number = result_ids(step, config), max_tasks(step, config)
    if task not in ids:
        raise InputError(f"{step} has no {task}: its results are {ids[0]} to {ids[-1]}")
    if int(task) >= number:
        owner = ids[int(task) % number]
        raise InputError(f"{step} {task} is made by the task {owner}: ask for {owner}.manifest.json")
    return ids[int(task) :: number]
