"""The steps of the workflow in order, what each needs, and how many tasks it has. Filters are one table among them.

The rules name the same edges as inputs; `tests/workflow/test_steps.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from scripts.heuristics.rules import LOOSER
from scripts.ingest.lists import is_listed
from scripts.models import registry
from scripts.models.registry import BASE_STEP, EXPORT_STEP, QUANTIZE_STEP, REWARD_STEP
from scripts.quality import scorers
from scripts.workflow.errors import InputError

DOCUMENTS = "ingest.extract"
# In `needs`, what depends on the filters that a run uses (`filters` in the config) and on their order:
BEFORE = "the verdicts before"  # the step with the newest verdicts: of the filter before, or FIRST
LABELS = "the languages before"  # language.score, where that filter comes before
EDITS = "the edits before"  # the steps of the filters before that edit texts
EVERY = "all verdicts"  # all verdicts, in their order
FIRST = "ingest.check"  # the verdicts before those of the first filter


@dataclass(frozen=True)
class Step:
    """One step: the steps it reads from, and the wildcard that numbers its tasks (None: one task)."""

    needs: tuple[str, ...] = ()
    per: str | None = None


DECONTAMINATE = "decontaminate"  # used where it is among the filters, and there is something to search for
TEXT = (DOCUMENTS, BEFORE, EDITS)  # what reads the texts that are still there
SELECT = Step((".score",), per="shard")  # judges each document by its own measures
SCORES = (".score", ".fasttext", ".transformers", ".kenlm")  # of quality: what scores documents
SCORE_AND_SELECT = {"score": Step(TEXT, per="shard"), "select": SELECT}


@dataclass(frozen=True)
class Filter:
    """Steps that end with `select`, which writes a verdict on every document that got so far: shard by shard where a document's
    own measures decide, over all shards where others' do (duplicates, the best tenth).

    `.score` among needs is the filter's own step. after: filters that have to come before it. edits: its step that writes which
    parts of a text are removed or replaced (scripts/formats/spans.py). exempting: its steps that are told which sources skip it.
    """

    steps: dict[str, Step] = field(default_factory=lambda: SCORE_AND_SELECT)
    after: tuple[str, ...] = ()
    edits: str = ""
    exempting: tuple[str, ...] = ("select",)


FILTERS: dict[str, Filter] = {
    "url": Filter({"score": Step((DOCUMENTS, BEFORE), per="shard"), "select": SELECT}),
    "language": Filter(
        {
            "score": Step(TEXT, per="shard"),
            "compare": Step((*TEXT, ".score"), per="shard"),
            "select": Step((".score", ".compare"), per="shard"),
        }
    ),
    "multilingual": Filter(
        {"score": Step((*TEXT, "language.score"), per="shard"), "select": SELECT},
        after=("language",),
        edits="score",
        exempting=("score", "select"),
    ),
    "heuristics": Filter(
        {
            "score": Step((*TEXT, "language.score"), per="shard"),
            "calibrate": Step((".score", "language.score")),
            "select": Step((".score", ".calibrate", "language.score"), per="shard"),
        },
        after=("language",),
        exempting=("calibrate", "select"),
    ),
    "lines": Filter(edits="score", exempting=("score", "select")),
    "boilerplate": Filter(
        {
            "count": Step(TEXT, per="shard"),
            "frequent": Step((".count",), per="part"),
            "score": Step((*TEXT, ".frequent"), per="shard"),
            "select": SELECT,
        },
        edits="score",
        exempting=("count", "score", "select"),
    ),
    "licence": Filter({"score": Step((DOCUMENTS, BEFORE), per="shard"), "select": SELECT}),
    "sourcecode": Filter(),
    "toxicity": Filter({"score": Step((*TEXT, "language.score"), per="shard"), "select": SELECT}, after=("language",)),
    "pii": Filter(
        {"score": Step((*TEXT, "language.score"), per="shard"), "select": SELECT}, after=("language",), edits="select"
    ),
    "dedup": Filter(
        {
            "signature": Step(TEXT, per="shard"),
            "exact": Step((".signature",)),
            "band": Step((".signature", ".exact"), per="band"),
            "sets": Step((".band", ".exact", ".signature", DOCUMENTS, EDITS), per="shard"),
            "verify": Step((".sets", ".band"), per="part"),
            "select": Step((".verify", ".exact", ".signature")),
        },
        exempting=("exact", "export"),
    ),
    "paragraphs": Filter(
        {
            "hash": Step(TEXT, per="shard"),
            "repeated": Step((".hash",), per="part"),
            "score": Step((*TEXT, ".hash", ".repeated"), per="shard"),
            "select": SELECT,
        },
        edits="score",
        exempting=("hash", "score", "select"),
    ),
    "substrings": Filter(
        {
            "sample": Step(TEXT, per="shard"),
            "shared": Step((".sample",), per="part"),
            "windows": Step((*TEXT, ".sample", ".shared"), per="shard"),
            "repeated": Step((".windows",), per="part"),
            "score": Step((*TEXT, ".sample", ".repeated"), per="shard"),
            "select": SELECT,
        },
        edits="score",
        exempting=("sample", "windows", "score", "select"),
    ),
    "quality": Filter(
        {
            "train": Step(TEXT),
            "score": Step((".train", *TEXT), per="shard"),
            # Used where they are asked for (scripts/quality/scorers.py):
            "ngrams": Step((".train", *TEXT)),
            "fasttext": Step(TEXT, per="shard"),
            "transformers": Step(TEXT, per="shard"),
            "lm": Step((*TEXT, LABELS)),
            "kenlm": Step((".lm", *TEXT, LABELS), per="shard"),
            "calibrate": Step((".train", ".lm", *SCORES)),
            "combine": Step((".calibrate", *SCORES), per="shard"),
            "select": Step((".score", ".combine", "language.score")),
        },
        exempting=("train", "lm", "calibrate", "select"),
    ),
    DECONTAMINATE: Filter(
        {"index": Step(), "score": Step((".index", *TEXT), per="shard"), "select": SELECT}, edits="select"
    ),
}
EXEMPTING = frozenset(f"{name}.{step}" for name, found in FILTERS.items() for step in found.exempting)


def _filters() -> dict[str, Step]:
    return {
        f"{name}.{step}": Step(tuple(name + need if need.startswith(".") else need for need in facts.needs), facts.per)
        for name, found in FILTERS.items()
        for step, facts in found.steps.items()
    }


# The steps that make a model: the first makes `base`, each other one the models that the config's `models` has made by it.
MAKERS = (BASE_STEP, "finetune.train", REWARD_STEP, "align.train", "compress.prune", QUANTIZE_STEP)
# Those whose models are evaluated, exported and served:
LANGUAGE_MODELS = tuple(step for step in MAKERS if step != REWARD_STEP)
# Used where `models` has one of theirs:
ON_DEMAND = (REWARD_STEP, "align.train", "compress.prune", QUANTIZE_STEP, EXPORT_STEP)
MASKED = ("finetune.pairs", "align.pairs")  # are told the settings of the filter pii where the run uses it
PAIRS = "align.pairs"  # used where a model is aligned; reads a model too where its `from` names one
EXPORT = "dedup.export"  # used where the config asks for it
COMPARE = "language.compare"  # used where the config names other models, or asks for scripts
CALIBRATE = "heuristics.calibrate"  # used where the config names a method
LANGUAGES = "language.score"  # read by a `select` only where its thresholds differ by language
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
MIX = "pretrain.mix"  # used where the config has phases of a mix; is told the settings of pretrain.train
MIXED_BY = {"language": "language.score", "quality": "quality.score"}  # what `pretrain.mix.by` reads besides
SETS = f"{DECONTAMINATE}.index"  # is told which tasks are evaluated
FOUND = "evaluate.found"  # used where decontamination is
PLAN = "pretrain.plan"  # what the training will take; is told the settings of pretrain.train
STEPS: dict[str, Step] = {
    CRAWL: Step(),
    REPHRASE: Step(),
    SEED: Step(),
    LIST: Step(),
    FETCH: Step((LIST,), per="shard"),
    "ingest.extract": Step((CRAWL, LIST, FETCH, REPHRASE, SEED), per="shard"),
    "ingest.check": Step((DOCUMENTS,)),
    **_filters(),
    "corpus.split": Step((DOCUMENTS, EVERY, "dedup.signature", "dedup.exact", "dedup.verify")),
    EXPORT: Step((DOCUMENTS, EDITS, "dedup.signature", "corpus.split"), per="shard"),
    "corpus.write": Step((DOCUMENTS, EVERY, EDITS, "corpus.split"), per="shard"),
    "tokenize.train": Step(("corpus.write",)),
    "tokenize.encode": Step(("tokenize.train", "corpus.write"), per="shard"),
    MIX: Step(("tokenize.encode", "tokenize.train", *MIXED_BY.values())),
    PLAN: Step(("tokenize.encode", "tokenize.train")),
    "pretrain.train": Step(("tokenize.encode", "tokenize.train", MIX)),
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
    GENERATE: Step((*LANGUAGE_MODELS, "finetune.pairs"), per="model"),
    JUDGE: Step((GENERATE,), per="model"),
    "evaluate.compare": Step(("evaluate.model", "tokenize.encode", "language.score", PUBLIC, GENERATE, JUDGE)),
    # Everything that its card tells of the run.
    EXPORT_STEP: Step(
        (
            DOCUMENTS,
            EVERY,
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
    "report.render": Step(
        (
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
        )
    ),
}


EVALUATION = "evaluate.model"
# The steps that have a task for each model that is evaluated, and the models of these that they have one for.
EVALUATIONS = {
    EVALUATION: registry.evaluated,
    PUBLIC: registry.evaluated,
    GENERATE: registry.names,
    JUDGE: registry.names,
}
LAST = "report.render"  # made again where anything else is
TASKS = 256  # most tasks of a sharded step: with more shards, a task owns several (few, fat tasks)
AT_ONCE = 8  # shards that a task does at the same time, where the profile's set-threads does not say otherwise; fewer make no second task
NUMBERED = ("shard", "band", "part")  # wildcards whose results are numbered, and of which a task may own several
DEMO_CRAWL = "crawl"  # the source kind that CRAWL writes
SYNTHESIZED = "synthesized"  # and that of texts that SYNTHESIZE write; the source's `step` says which


def stage_of(step: str) -> str:
    """`language` of `language.score`."""
    return step.partition(".")[0]


def rule_of(step: str) -> str:
    """`language_score` of `language.score`."""
    return step.replace(".", "_")


def step_of(rule: str) -> str:
    """`language.score` of `language_score`."""
    return rule.replace("_", ".", 1)


def folder_of(step: str) -> Path:
    """`language/score`: a step's folder below those of a variant's results, logs and benchmark files."""
    return Path(*step.split("."))


def searched(config: dict[str, Any]) -> list[str]:
    """The public tasks that decontamination searches for: those that are evaluated, or those that `decontaminate.index.tasks` names."""
    fixed = config["decontaminate"]["index"]["tasks"]
    return sorted(config["evaluate"]["public"]["presets"] if fixed is None else fixed)


def filters(config: dict[str, Any]) -> list[str]:
    """The filters of a run in their order: of those that the config lists, not decontamination where there is nothing to search for."""
    wanted = bool(searched(config) or config["decontaminate"]["index"]["files"])
    return [name for name in config["filters"] if name != DECONTAMINATE or wanted]


def wrong_order(filters: Sequence[str]) -> str | None:
    """Why filters cannot be used in this order, in words; None where they can."""
    for number, name in enumerate(filters):
        for other in FILTERS[name].after:
            if other not in filters[:number]:
                return f"filters is {list(filters)!r}: {name} needs {other} before it"
    return None


def before(filters: Sequence[str], until: str | None) -> Sequence[str]:
    """The filters before `until`; all where it is none of them."""
    return filters[: filters.index(until)] if until in filters else filters


def verdicts(filters: Sequence[str], until: str | None = None) -> list[str]:
    """The steps that judge documents, in order: all, or those before the filter `until`."""
    return [FIRST, *(f"{name}.select" for name in before(filters, until))]


def edits(filters: Sequence[str], until: str | None = None) -> list[str]:
    """The steps that say what is removed from texts or replaced: of all filters, or of those before `until`."""
    found = [stage_of(step) for step in verdicts(filters, until)[1:]]
    return [f"{name}.{FILTERS[name].edits}" for name in found if FILTERS[name].edits]


def skipped_by(step: str, config: dict[str, Any]) -> list[str]:
    """The sources whose `skip_filters` names the filter of a step, sorted: it keeps their documents whatever it measures."""
    sources = config["ingest"]["extract"]["sources"]
    return sorted(source["name"] for source in sources if stage_of(step) in source.get("skip_filters", []))


def resolved(step: str, filters: Sequence[str]) -> tuple[str, ...]:
    """The steps that `step` reads from where a run uses these filters in this order; none of a filter that it does not use."""
    until = stage_of(step)
    named = {
        BEFORE: lambda: verdicts(filters, until)[-1:],
        EDITS: lambda: edits(filters, until),
        EVERY: lambda: verdicts(filters),
        LABELS: lambda: ["language.score"] if "language" in before(filters, until) else [],
    }
    found = [name for need in STEPS[step].needs for name in (named[need]() if need in named else [need])]
    there = (name for name in found if stage_of(name) not in FILTERS or stage_of(name) in filters)
    return tuple(dict.fromkeys(there))


def is_used(step: str, config: dict[str, Any]) -> bool:
    """Whether a run has a step: not that of a filter that it does not use, nor one that nothing asks for."""
    if step == PAIRS:
        return is_used("align.train", config) or is_used(REWARD_STEP, config)
    if step == EXPORT and not config["dedup"]["export"]["write"]:
        return False
    if step == COMPARE and not any(config["language"]["compare"].values()):
        return False
    if step == CALIBRATE and config["heuristics"]["calibrate"]["method"] is None:
        return False
    if step in ON_DEMAND and not registry.made_by(config, step):
        return False
    if step == MIX:
        return bool(config["pretrain"]["mix"]["phases"])
    if step == CRAWL:
        return any(source["kind"] == DEMO_CRAWL for source in config["ingest"]["extract"]["sources"])
    if step in SYNTHESIZE:
        return any(source.get("step") == step for source in config["ingest"]["extract"]["sources"])
    if step == FETCH and not config["ingest"]["fetch"]["enabled"]:
        return False
    if step in (STAGE, PUBLIC):
        return bool(config["evaluate"]["public"]["presets"])
    if step == JUDGE:
        return config["evaluate"]["judge"]["model"] is not None
    if step == FOUND:
        return DECONTAMINATE in filters(config)
    if step == CURVE:
        return bool(config["evaluate"]["curve"]["every"])
    if step == GENERATE:
        return any(config["evaluate"]["generate"][kind] for kind in ("questions", "samples"))
    if step in (LIST, FETCH):
        return any(is_listed(source, config["data"]) for source in config["ingest"]["extract"]["sources"])
    if stage_of(step) == "quality" and not scorers.used(step.partition(".")[2], config):
        return False
    return stage_of(step) not in FILTERS or stage_of(step) in filters(config)


def judges_by_language(config: dict[str, Any]) -> bool:
    """Whether heuristics.select has to know languages: not where only one gets there, whose thresholds are those for all."""
    if config["heuristics"]["select"]["languages"] or is_used(CALIBRATE, config):
        return True
    wanted, skipped = config["language"]["select"]["languages"], skipped_by("language.select", config)
    return bool(skipped) or not wanted or not LOOSER.keys().isdisjoint(wanted)


def is_read(need: str, step: str, config: dict[str, Any]) -> bool:
    """Whether a step reads another that the table names among its needs: some are read only where the config asks for it."""
    if not is_used(need, config):
        return False
    if need == LANGUAGES and step == "heuristics.select":
        return judges_by_language(config)
    if need == LANGUAGES and step == "quality.select":
        return bool(config["quality"]["select"]["by"] == "language")
    return True


def used(config: dict[str, Any]) -> list[str]:
    """The steps of a run, in order."""
    return [step for step in STEPS if is_used(step, config)]


def needs(step: str, config: dict[str, Any], task: str = "") -> tuple[str, ...]:
    """The steps that `step` reads from under this config.

    Of the steps that make models, those that make what is read.
    """
    found = tuple(name for name in resolved(step, filters(config)) if is_read(name, step, config))
    if step == PAIRS and (model := config["align"]["pairs"]["from"]):
        found = (registry.task(config, model)[0], *found)
    if step == MIX:
        by = MIXED_BY.get(config["pretrain"]["mix"]["by"])
        found = tuple(name for name in found if name not in MIXED_BY.values() or name == by)
    if step == QUANTIZE_STEP and not registry.calibrates(config, task):
        found = tuple(name for name in found if name != "tokenize.encode")
    if STEPS[step].per == "model" and set(MAKERS) & set(found):
        makers = {registry.task(config, model)[0] for model in models_read(step, config, task)}
        others = tuple(name for name in found if name not in MAKERS)
        found = tuple(name for name in MAKERS if name in makers) + others
    return found


def models_read(step: str, config: dict[str, Any], task: str) -> list[str]:
    """The models that a model's task reads: an evaluation its own, or all without a task; an export all that it is made from; a step that
    makes one its parent, or `base`, and the reward models that judge its answers.
    """
    if step in EVALUATIONS:
        return [task] if task else EVALUATIONS[step](config)
    if step == EXPORT_STEP:
        return registry.lineage(config, task) if task else registry.evaluated(config)
    return [
        registry.parent(config, task) or registry.BASE if task else registry.BASE,
        *registry.reward_models(config, task),
    ]


def upstream(step: str, config: dict[str, Any], task: str = "") -> list[tuple[str, str]]:
    """(step, task) of all that a task reads from; the task is a model's name, and "" of a step that has no task for each model."""
    every = [
        *registry.evaluated(config),
        *(name for one in (EXPORT_STEP, REWARD_STEP) for name in registry.made_by(config, one)),
    ]
    read = models_read(step, config, task) if STEPS[step].per == "model" else every
    if step == PAIRS:
        read = [config["align"]["pairs"]["from"]]
    found = []
    for name in needs(step, config, task):
        found += [(name, model) for model in models(name, config) if not model or model in read]
    return found


@cache
def _numbers(count: int, digits: int) -> tuple[str, ...]:
    """Zero-padded numbers from 0: a plan over 4,096 shards asks for them thousands of times."""
    return tuple(f"{number:0{digits}d}" for number in range(count))


def shards(config: dict[str, Any]) -> list[str]:
    """The zero-padded shard numbers."""
    return list(_numbers(config["ingest"]["extract"]["shards"], 5))


def bands(config: dict[str, Any]) -> list[str]:
    """The zero-padded band numbers."""
    return list(_numbers(config["dedup"]["signature"]["bands"], 2))


def number_of_parts(shards: int) -> int:
    """Into how many parts candidate pairs are dealt out, so that no task measures them all; a corpus of few shards has one."""
    return min(TASKS, max(1, shards // 8))


def parts(config: dict[str, Any]) -> list[str]:
    """The zero-padded numbers of the parts of candidate pairs."""
    return [f"{number:03d}" for number in range(number_of_parts(len(shards(config))))]


def most(step: str, config: dict[str, Any]) -> int:
    """The most tasks of a step by shard, band or part. A corpus of few shards has few: a task of 8 shards starts once, not 8 times."""
    number = len(shards(config))
    wanted = {"shard": -(-number // AT_ONCE), "band": max(1, number // 2)}
    return min(TASKS, wanted.get(STEPS[step].per or "", number))


def ids(step: str, config: dict[str, Any]) -> list[str]:
    """The ids of a step's results, one manifest each: shard, band or part numbers, model names, or [""] for a one-task step."""
    per = STEPS[step].per
    if per == "model":
        return EVALUATIONS[step](config) if step in EVALUATIONS else registry.made_by(config, step)
    numbered = {"shard": shards, "band": bands, "part": parts}
    return numbered[per](config) if per else [""]


def tasks(step: str, config: dict[str, Any]) -> list[str]:
    """The task ids of a step: with more shards (bands) than tasks, each is called by the first that it owns."""
    found = ids(step, config)
    return found[: most(step, config)] if STEPS[step].per in NUMBERED else found


def models(step: str, config: dict[str, Any]) -> list[str]:
    """The models that a step has a task for each of; [""] of any other step, whose tasks all have the same settings."""
    return ids(step, config) if STEPS[step].per == "model" else [""]


def owned(step: str, task: str, config: dict[str, Any]) -> list[str]:
    """The ids of the results that one task makes: of all shards (bands) that it owns, every `most`-th from its first.

    Raises InputError for an id that no task is called by: it does not exist, or two tasks would write the same files.
    """
    if STEPS[step].per not in NUMBERED:
        return [task]
    found, number = ids(step, config), most(step, config)
    if task not in found:
        raise InputError(f"{step} has no {task}: its results are {found[0]} to {found[-1]}")
    if int(task) >= number:
        owner = found[int(task) % number]
        raise InputError(f"{step} {task} is made by the task {owner}: ask for {owner}.manifest.json")
    return found[int(task) :: number]
