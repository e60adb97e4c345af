"""The steps of the workflow in order, what each needs, and how many tasks it has. Those of filters are in filter_order.py.

The rules name the same edges as inputs; `tests/workflow/test_steps.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from crawl2llm.chain import filter_order, halving, model_registry, scorers, shared_reference
from crawl2llm.chain.file_lists import is_listed
from crawl2llm.chain.filter_order import (
    ALL_VERDICTS,
    DECONTAMINATE,
    DOCUMENTS,
    EDITS_BEFORE,
    FILTERS,
    LANGUAGES_BEFORE,
    VERDICTS_BEFORE,
    Step,
    edit_steps,
    filters_before,
    used_filters,
    verdict_steps,
)
from crawl2llm.chain.heuristics_rules import LOOSER
from crawl2llm.chain.model_registry import BASE_STEP, EXPORT_STEP, QUANTIZE_STEP, REWARD_STEP
from crawl2llm.core import language_codes
from crawl2llm.core.errors import InputError

# The steps that make a model: the first makes `base`, each other one the models that the config's `models` has made by it.
MAKERS = (BASE_STEP, "finetune.train", REWARD_STEP, "align.train", "compress.prune", QUANTIZE_STEP)
# Those whose models are evaluated, exported and served:
LANGUAGE_MODELS = tuple(step for step in MAKERS if step != REWARD_STEP)
# Used where `models` has one of theirs:
ON_DEMAND = (REWARD_STEP, "align.train", "compress.prune", QUANTIZE_STEP, EXPORT_STEP)
MASKING_STEPS = ("finetune.pairs", "align.pairs")  # are told the settings of the filter pii where the run uses it
PAIRS = "align.pairs"  # used where a model is aligned; reads a model too where its `from` names one
EXPORT = "dedup.export"  # used where the config asks for it
COMPARE = "language.compare"  # used where the config names other models, or asks for scripts
CALIBRATE = "heuristics.calibrate"  # used where the config names a method
LANGUAGES = "language.score"  # read by a `select` only where its thresholds differ by language, by topics where they are by language
CRAWL = "crawl.render"  # used where a source is of its kind
REPHRASE, SEED = SYNTHESIZE = ("synthesize.rephrase", "synthesize.seed")  # used where a source of their kind names them
LIST = "ingest.list"  # used where files of a source are remote
FETCH = "ingest.fetch"  # used where these are to be copied to the disk first
ITEMS = "evaluate.items"  # is told which held-out text evaluate.model scores
STAGE = "evaluate.stage"  # used where public tasks are named; is told which
PUBLIC = "evaluate.public"  # asks the models these
GENERATE = "evaluate.generate"  # used where answers or samples are asked for
JUDGE = "evaluate.judge"  # used where a judge is named
NGRAMS = "quality.ngrams"  # used where the config asks for it
CURVE = "evaluate.curve"  # used where a step's number says how far apart its points are
REFERENCE = "corpus.reference"  # the documents that main holds out; used where HELDOUT is
HELDOUT = "corpus.heldout"  # used where a variant may train on what main holds out, or on near-duplicates of it
COMMON = "evaluate.common"  # used where variants are compared, by main and all of them
MIX = "pretrain.mix"  # used where the config has phases of a mix; is told the settings of pretrain.train
TOPICS = ("topics.train", "topics.score", "topics.count")  # used where the config asks for clusters
MIXED_BY = {
    "language": "language.score",
    "quality": "quality.score",
    "topic": "topics.score",
}  # what `pretrain.mix.by` reads besides
SETS = f"{DECONTAMINATE}.index"  # is told which tasks are evaluated
FOUND = "evaluate.found"  # used where decontamination is
WHATIF = "report.whatif"  # used where it has points; is told the settings of all select steps
RUNG = "pretrain.rung"  # used where variants are judged while they train (sweep.halving); its tasks read those of the rung before
HALVE = "pretrain.halve"  # and this too
INSPECT = "report.inspect"  # used where samples are asked for; is told the settings of every filter's select
# Of every document what it was judged by, and the verdicts:
JUDGEMENTS = (
    DOCUMENTS,
    ALL_VERDICTS,
    *(f"{name}.score" for name, found in FILTERS.items() if "score" in found.steps),
    COMPARE,
    CALIBRATE,
    "dedup.signature",
    "dedup.exact",
    "dedup.verify",
    "quality.combine",
)
PLAN = "pretrain.plan"  # what the training will take; is told the settings of pretrain.train
STEPS: dict[str, Step] = {
    CRAWL: Step(),
    REPHRASE: Step(),
    SEED: Step(),
    LIST: Step(),
    FETCH: Step((LIST,), per="shard"),
    "ingest.extract": Step((CRAWL, LIST, FETCH, REPHRASE, SEED), per="shard"),
    "ingest.check": Step((DOCUMENTS,)),
    **filter_order.filter_steps(),
    "topics.train": Step((DOCUMENTS, LANGUAGES)),
    "topics.score": Step((DOCUMENTS, "topics.train", LANGUAGES), per="shard"),
    "topics.count": Step(("topics.score", ALL_VERDICTS), per="shard"),
    "corpus.split": Step((DOCUMENTS, ALL_VERDICTS, "dedup.signature", "dedup.exact", "dedup.verify")),
    EXPORT: Step((DOCUMENTS, EDITS_BEFORE, "dedup.signature", "corpus.split"), per="shard"),
    REFERENCE: Step(common=(DOCUMENTS, EDITS_BEFORE, "corpus.split")),
    HELDOUT: Step((DOCUMENTS, EDITS_BEFORE, "corpus.split", REFERENCE), per="shard"),
    "corpus.write": Step((DOCUMENTS, ALL_VERDICTS, EDITS_BEFORE, "corpus.split", HELDOUT), per="shard"),
    "tokenize.train": Step(("corpus.write",)),
    "tokenize.encode": Step(("tokenize.train", "corpus.write"), per="shard"),
    MIX: Step(("tokenize.encode", "tokenize.train", *MIXED_BY.values())),
    PLAN: Step(("tokenize.encode", "tokenize.train")),
    RUNG: Step(("tokenize.encode", "tokenize.train"), per="contender"),
    HALVE: Step((RUNG,)),
    "pretrain.train": Step(("tokenize.encode", "tokenize.train", MIX, HALVE)),
    "finetune.pairs": Step(("corpus.write", SETS)),
    "finetune.train": Step(("pretrain.train", "finetune.pairs"), per="model"),
    PAIRS: Step(("finetune.pairs", SETS)),
    REWARD_STEP: Step(("pretrain.train", "align.pairs"), per="model"),
    "align.train": Step(("pretrain.train", REWARD_STEP, "align.pairs"), per="model"),
    "compress.prune": Step(("pretrain.train", "tokenize.encode"), per="model"),
    # Reads text where a model's method calibrates on it.
    QUANTIZE_STEP: Step(("pretrain.train", "tokenize.encode"), per="model"),
    ITEMS: Step(("tokenize.encode", "tokenize.train")),
    "evaluate.model": Step((*LANGUAGE_MODELS, "finetune.pairs", "tokenize.encode", ITEMS), per="model"),
    STAGE: Step(),
    PUBLIC: Step((*LANGUAGE_MODELS, STAGE), per="model"),
    FOUND: Step((SETS, f"{DECONTAMINATE}.select", PUBLIC)),
    CURVE: Step((BASE_STEP, ITEMS)),
    COMMON: Step(LANGUAGE_MODELS, per="model", common=("corpus.write", ITEMS)),
    GENERATE: Step((*LANGUAGE_MODELS, "finetune.pairs"), per="model"),
    JUDGE: Step((GENERATE,), per="model"),
    "evaluate.compare": Step(("evaluate.model", "tokenize.encode", "language.score", PUBLIC, GENERATE, JUDGE)),
    # Everything that its card tells of the run.
    EXPORT_STEP: Step(
        (
            DOCUMENTS,
            ALL_VERDICTS,
            "corpus.split",
            "corpus.write",
            "tokenize.train",
            "tokenize.encode",
            *LANGUAGE_MODELS,
            "finetune.pairs",
            ITEMS,
            "evaluate.model",
        ),
        per="model",
    ),
    WHATIF: Step((*JUDGEMENTS, "tokenize.encode")),
    INSPECT: Step((*JUDGEMENTS, EDITS_BEFORE)),
    "report.render": Step(
        (
            INSPECT,
            "evaluate.model",
            PUBLIC,
            FOUND,
            CURVE,
            GENERATE,
            JUDGE,
            "evaluate.compare",
            REWARD_STEP,
            EXPORT_STEP,
            ITEMS,
            EXPORT,
            PLAN,
            NGRAMS,
            "topics.count",
            WHATIF,
        )
    ),
    "report.compare": Step(("report.render", COMMON)),
}


EVALUATION = "evaluate.model"
# The steps that have a task for each model that is evaluated, and the models of these that they have one for.
EVALUATIONS = {
    EVALUATION: model_registry.evaluated_models,
    PUBLIC: model_registry.evaluated_models,
    COMMON: model_registry.language_models,
    GENERATE: model_registry.language_models,
    JUDGE: model_registry.language_models,
}
REPORT_STEP = "report.render"  # made again where anything else is
COMPARE_ALL = "report.compare"  # used by main where the run has variants; reads LAST and COMMON of every variant
PAGES = (REPORT_STEP, COMPARE_ALL)  # show results, and are none
# No variant's report waits for these, or to add a variant would make main's again:
NOT_IN_REPORT = (COMMON, REPORT_STEP, COMPARE_ALL)
TASKS = 256  # most tasks of a sharded step: with more shards, a task owns several (few, fat tasks)
AT_ONCE = 8  # shards that a task does at the same time, where the profile's set-threads does not say otherwise; fewer make no second task
WITH_OWN_SETTINGS = ("model", "contender")  # wildcards whose tasks have settings, and so a fingerprint, of their own
NUMBERED = ("shard", "band", "part")  # wildcards whose results are numbered, and of which a task may own several
DEMO_CRAWL = "crawl"  # the source kind that CRAWL writes
SYNTHESIZED = "synthesized"  # and that of texts that SYNTHESIZE write; the source's `step` says which


def stage_of(step: str) -> str:
    """`language` of `language.score`."""
    return step.partition(".")[0]


def package_of(stage: str) -> str:
    """The package that a stage, or a filter, is a folder of: `stages` or `filters`."""
    return "filters" if stage in FILTERS else "stages"


def program_of(step: str) -> str:
    """The module that is a step's program, such as `crawl2llm.filters.url.score`."""
    return f"crawl2llm.{package_of(stage_of(step))}.{step}"


def rule_of(step: str) -> str:
    """`language_score` of `language.score`."""
    return step.replace(".", "_")


def step_of(rule: str) -> str:
    """`language.score` of `language_score`."""
    return rule.replace("_", ".", 1)


def folder_of(step: str) -> Path:
    """`language/score`: a step's folder below those of a variant's results, logs and benchmark files."""
    return Path(*step.split("."))


def skipped_by(step: str, config: dict[str, Any]) -> list[str]:
    """The sources whose `skip_filters` names the filter of a step, sorted: it keeps their documents whatever it measures."""
    sources = config["ingest"]["extract"]["sources"]
    return sorted(source["name"] for source in sources if stage_of(step) in source.get("skip_filters", []))


def resolve_needs(step: str, filters: Sequence[str], of_main: bool = False) -> tuple[str, ...]:
    """The steps that `step` reads from where a run uses these filters in this order; none of a filter that it does not use.

    of_main: those that it reads from of `main`, whose filters these are.
    """
    until = stage_of(step)
    by_filters = {
        VERDICTS_BEFORE: lambda: verdict_steps(filters, until)[-1:],
        EDITS_BEFORE: lambda: edit_steps(filters, until),
        ALL_VERDICTS: lambda: verdict_steps(filters),
        LANGUAGES_BEFORE: lambda: ["language.score"] if "language" in filters_before(filters, until) else [],
    }
    facts = STEPS[step]
    names = [
        name
        for need in (facts.common if of_main else facts.needs)
        for name in (by_filters[need]() if need in by_filters else [need])
    ]
    present = (name for name in names if stage_of(name) not in FILTERS or stage_of(name) in filters)
    return tuple(dict.fromkeys(present))


def _has_source(config: dict[str, Any], matches: Callable[[dict[str, Any]], bool]) -> bool:
    return any(matches(source) for source in config["ingest"]["extract"]["sources"])


def _is_listed(config: dict[str, Any]) -> bool:
    return _has_source(config, lambda source: is_listed(source, config["data"]))


def _is_made(step: str, config: dict[str, Any]) -> bool:
    return bool(model_registry.models_made_by(config, step))


# By step, whether a config asks for it. Other steps are asked for by every config that has their filter.
CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    CRAWL: lambda config: _has_source(config, lambda source: bool(source["kind"] == DEMO_CRAWL)),
    REPHRASE: lambda config: _has_source(config, lambda source: source.get("step") == REPHRASE),
    SEED: lambda config: _has_source(config, lambda source: source.get("step") == SEED),
    LIST: _is_listed,
    FETCH: lambda config: config["ingest"]["fetch"]["enabled"] and _is_listed(config),
    COMPARE: lambda config: any(config["language"]["compare"].values()),
    CALIBRATE: lambda config: config["heuristics"]["calibrate"]["method"] is not None,
    EXPORT: lambda config: bool(config["dedup"]["export"]["write"]),
    **{f"quality.{step}": partial(scorers.is_step_used, step) for step in FILTERS["quality"].steps},
    MIX: lambda config: bool(config["pretrain"]["mix"]["phases"]),
    PAIRS: lambda config: _is_made("align.train", config) or _is_made(REWARD_STEP, config),
    **{step: partial(_is_made, step) for step in ON_DEMAND},
    **dict.fromkeys(TOPICS, lambda config: bool(config["topics"]["train"]["clusters"])),
    STAGE: lambda config: bool(config["evaluate"]["public"]["presets"]),
    PUBLIC: lambda config: bool(config["evaluate"]["public"]["presets"]),
    FOUND: lambda config: DECONTAMINATE in used_filters(config),
    REFERENCE: shared_reference.needs_heldout_search,
    HELDOUT: shared_reference.needs_heldout_search,
    COMMON: lambda config: shared_reference.main_config(config) is not None,
    RUNG: halving.is_used,
    HALVE: halving.is_used,
    CURVE: lambda config: bool(config["evaluate"]["curve"]["every"]),
    WHATIF: lambda config: bool(config["report"]["whatif"]["points"] and used_filters(config)),
    INSPECT: lambda config: bool(config["report"]["inspect"]["samples"]),
    COMPARE_ALL: lambda config: bool(config["variants"]),
    GENERATE: lambda config: any(config["evaluate"]["generate"][kind] for kind in ("questions", "samples")),
    JUDGE: lambda config: config["evaluate"]["judge"]["model"] is not None,
}


def is_used(step: str, config: dict[str, Any]) -> bool:
    """Whether a run has a step: not that of a filter that it does not use, nor one that nothing asks for."""
    stage = stage_of(step)
    return (stage not in FILTERS or stage in used_filters(config)) and (
        step not in CONDITIONS or CONDITIONS[step](config)
    )


def judges_by_language(config: dict[str, Any]) -> bool:
    """Whether heuristics.select has to know languages: not where only one gets there, whose thresholds are those for all."""
    if config["heuristics"]["select"]["languages"] or is_used(CALIBRATE, config):
        return True
    languages, skipped = config["language"]["select"]["languages"], skipped_by("language.select", config)
    return bool(skipped) or not languages or any(language_codes.lookup_label(LOOSER, name) for name in languages)


def is_read(need: str, step: str, config: dict[str, Any]) -> bool:
    """Whether a step reads another that the table names among its needs: some are read only where the config asks for it."""
    if not is_used(need, config):
        return False
    if need == LANGUAGES and step == "heuristics.select":
        return judges_by_language(config)
    if need == LANGUAGES and step in TOPICS:
        return bool(config["topics"]["train"]["by"] == "language")
    if need == LANGUAGES and step == "quality.select":
        return bool(config["quality"]["select"]["by"] == "language")
    return True


def used_steps(config: dict[str, Any]) -> list[str]:
    """The steps of a run, in order."""
    return [step for step in STEPS if is_used(step, config)]


def needed_steps(step: str, config: dict[str, Any], task: str = "") -> tuple[str, ...]:
    """The steps that `step` reads from under this config.

    Of the steps that make models, those that make what is read.
    """
    names = tuple(name for name in resolve_needs(step, used_filters(config)) if is_read(name, step, config))
    if step == PAIRS and (model := config["align"]["pairs"]["from"]):
        names = (model_registry.making_task(config, model)[0], *names)
    if step == MIX:
        by = MIXED_BY.get(config["pretrain"]["mix"]["by"])
        names = tuple(name for name in names if name not in MIXED_BY.values() or name == by)
    if step == QUANTIZE_STEP and not model_registry.is_calibrated(config, task):
        names = tuple(name for name in names if name != "tokenize.encode")
    if STEPS[step].per == "model" and set(MAKERS) & set(names):
        makers = {model_registry.making_task(config, model)[0] for model in models_read(step, config, task)}
        rest = tuple(name for name in names if name not in MAKERS)
        names = tuple(name for name in MAKERS if name in makers) + rest
    return names


def needed_steps_of_main(step: str, config: dict[str, Any]) -> tuple[str, ...]:
    """The steps that `step` reads from of `main`, whichever variant this config is of."""
    main = shared_reference.main_or_own_config(config)
    return tuple(name for name in resolve_needs(step, used_filters(main), of_main=True) if is_used(name, main))


def is_of_main(step: str, need: str) -> bool:
    """Whether what `step` reads of `need` is main's, in every variant."""
    facts = STEPS.get(step, Step())
    return bool(facts.common) and need not in facts.needs


def models_read(step: str, config: dict[str, Any], task: str) -> list[str]:
    """The models that a model's task reads: an evaluation its own, or all without a task; an export all that it is made from; a step that
    makes one its parent, or `base`, and the reward models that judge its answers.
    """
    if step in EVALUATIONS:
        return [task] if task else EVALUATIONS[step](config)
    if step == EXPORT_STEP:
        return model_registry.lineage(config, task) if task else model_registry.evaluated_models(config)
    return [
        model_registry.parent(config, task) or model_registry.BASE if task else model_registry.BASE,
        *model_registry.reward_models(config, task),
    ]


def upstream_tasks(step: str, config: dict[str, Any], task: str = "") -> list[tuple[str, str]]:
    """(step, task) of all that a task reads from; the task is a model's name, and "" of a step that has no task for each model."""
    all_models = [
        *model_registry.evaluated_models(config),
        *(name for maker in (EXPORT_STEP, REWARD_STEP) for name in model_registry.models_made_by(config, maker)),
    ]
    read = models_read(step, config, task) if STEPS[step].per == "model" else all_models
    if step == PAIRS:
        read = [config["align"]["pairs"]["from"]]
    pairs = []
    for name in needed_steps(step, config, task):
        pairs += [(name, model) for model in task_models(name, config) if not model or model in read or name == RUNG]
    return pairs + [(RUNG, rung_task) for rung_task in (halving.tasks_before(task, config) if step == RUNG else ())]


@cache
def _padded_numbers(count: int, digits: int) -> tuple[str, ...]:
    """Zero-padded numbers from 0: a plan over 4,096 shards asks for them thousands of times."""
    return tuple(f"{number:0{digits}d}" for number in range(count))


def shards(config: dict[str, Any]) -> list[str]:
    """The zero-padded shard numbers."""
    return list(_padded_numbers(config["ingest"]["extract"]["shards"], 5))


def bands(config: dict[str, Any]) -> list[str]:
    """The zero-padded band numbers."""
    return list(_padded_numbers(config["dedup"]["signature"]["bands"], 2))


def number_of_parts(shards: int) -> int:
    """Into how many parts candidate pairs are dealt out, so that no task measures them all; a corpus of few shards has one."""
    return min(TASKS, max(1, shards // 8))


def parts(config: dict[str, Any]) -> list[str]:
    """The zero-padded numbers of the parts of candidate pairs."""
    return [f"{number:03d}" for number in range(number_of_parts(len(shards(config))))]


def max_tasks(step: str, config: dict[str, Any]) -> int:
    """The most tasks of a step by shard, band or part. A corpus of few shards has few: a task of 8 shards starts once, not 8 times."""
    number = len(shards(config))
    limits = {"shard": -(-number // AT_ONCE), "band": max(1, number // 2)}
    return min(TASKS, limits.get(STEPS[step].per or "", number))


def result_ids(step: str, config: dict[str, Any]) -> list[str]:
    """The ids of a step's results, one manifest each: shard, band or part numbers, model names, or [""] for a one-task step."""
    per = STEPS[step].per
    if per == "model":
        return EVALUATIONS[step](config) if step in EVALUATIONS else model_registry.models_made_by(config, step)
    if per == "contender":
        return halving.rung_tasks(config)
    numbered = {"shard": shards, "band": bands, "part": parts}
    return numbered[per](config) if per else [""]


def task_ids(step: str, config: dict[str, Any]) -> list[str]:
    """The task ids of a step: with more shards (bands) than tasks, each is called by the first that it owns."""
    ids = result_ids(step, config)
    return ids[: max_tasks(step, config)] if STEPS[step].per in NUMBERED else ids


def task_models(step: str, config: dict[str, Any]) -> list[str]:
    """The models (contenders) that a step has a task for each of; [""] of any other step, whose tasks all have the same settings."""
    return result_ids(step, config) if STEPS[step].per in WITH_OWN_SETTINGS else [""]


def result_ids_of_task(step: str, task: str, config: dict[str, Any]) -> list[str]:
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
