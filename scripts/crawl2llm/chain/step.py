"""How a step and a filter are declared: what a step reads, which tasks it has, when a run uses it, and which settings it gets.

Each stage and each filter declares its own in its `steps.py`; chain/steps.py and chain/filter_order.py collect them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from crawl2llm.core.nested_dicts import lookup

Config = dict[str, Any]

DOCUMENTS = "ingest.extract"
LANGUAGES = "language.score"
# In `needs`, what depends on the filters that a run uses (`filters` in the config) and on their order:
VERDICTS_BEFORE = "the verdicts before"  # the step with the newest verdicts: of the filter before, or FIRST
LANGUAGES_BEFORE = "the languages before"  # LANGUAGES, if that filter comes before
EDITS_BEFORE = "the edits before"  # the steps of the filters before that edit texts
ALL_VERDICTS = "all verdicts"  # all verdicts, in their order
ALL_SCORES = "all scores"  # the step `score` of every filter that has one


def is_always_used(config: Config) -> bool:
    """For a step that every config asks for, or a filter that every run uses that lists it."""
    return True


def reads_always(need: str, config: Config, task: str) -> bool:
    """For a step that reads all that it needs."""
    return True


def names_files_itself(config: Config, task: str) -> Config:
    """For a step whose files are named by the config as it is."""
    return config


def no_extra_settings(config: Config, task: str) -> Config:
    """For a step that gets no settings but its own."""
    return {}


def alternatives(needs: str | tuple[str, ...]) -> tuple[str, ...]:
    """The steps that an entry of a step's `inputs` names."""
    return (needs,) if isinstance(needs, str) else needs


@dataclass(frozen=True)
class Step:
    """One step. The functions get a complete config, and the task: the model, of a step that has a task for each; else "".

    needs: the steps that it reads from; of a filter, `.score` is its own. per: the wildcard that numbers its tasks (None: one task).
    common: steps that it reads from of `main`, in every variant; none of them is among its `needs`.
    is_used: whether a run with this config has the step. One of a filter is used only where the filter is, too.
    reads: whether a task reads from one of its `needs`: some are read only where the config asks for it.
    extra_settings: what it gets beside its own settings: settings of other steps, models, sources. All of it is in its fingerprint.
    extra_paths: the keys among these that hold paths, which may begin with the folder `data`.
    exempts: its settings name the sources that skip its filter (`skipped_by`).
    tasks: the ids of its tasks by model or contender; None, of a step by model: the models that it makes.
    models_read: the models that a task reads; None: see `models_read` in chain/steps.py.
    files_of: the step whose keys name its files; "": its own. files_config: the config with these keys, if it is another.
    inputs: what it needs, by the options of its program and the inputs of its rule: a step, or several, whichever of them the task
    reads from (a model is made by one of MAKERS). These are among its `needs`, if they are not `common`.
    optional: the options of `inputs` that a task may lack: the manifests of a step that not every run has, or that it reads only sometimes.
    environment: its packages, envs/<environment>.yaml.
    follows: the step that it comes after, in the order of all steps; "": the one before it in its `steps.py`.
    """

    needs: tuple[str, ...] = ()
    per: str | None = None
    common: tuple[str, ...] = ()
    is_used: Callable[[Config], bool] = is_always_used
    reads: Callable[[str, Config, str], bool] = reads_always
    extra_settings: Callable[[Config, str], Config] = no_extra_settings
    extra_paths: tuple[str, ...] = ()
    exempts: bool = False
    tasks: Callable[[Config], list[str]] | None = None
    models_read: Callable[[Config, str], list[str]] | None = None
    files_of: str = ""
    files_config: Callable[[Config, str], Config] = names_files_itself
    environment: str = "data"
    follows: str = ""
    inputs: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        of_inputs = (need for needs in self.inputs.values() for need in alternatives(needs) if need not in self.common)
        object.__setattr__(self, "needs", tuple(dict.fromkeys((*self.needs, *of_inputs))))


# `inputs` of what reads the texts that are still there:
TEXT = {"documents": DOCUMENTS, "verdicts": VERDICTS_BEFORE, "edits": EDITS_BEFORE}
SCORE = Step(inputs=TEXT, per="shard")  # measures the texts of a shard
SELECT = Step(inputs={"signals": ".score"}, per="shard", exempts=True)  # judges each document by its own measures


@dataclass(frozen=True)
class Filter:
    """Steps that end with `select`, which writes a verdict on every document that got so far: shard by shard where a document's
    own measures decide, over all shards where others' do (duplicates, the best tenth).

    after: filters that have to come before it. edits: its step that writes which parts of a text are removed or replaced
    (formats/spans.py). masks: what it replaces would hide an item of an evaluation set. reads_masked: it reads what stood there.
    judges_curated: documents of curated sources may be dropped too. is_used: whether a run that lists it uses it.
    """

    steps: dict[str, Step]
    after: tuple[str, ...] = ()
    edits: str = ""
    masks: bool = False
    reads_masked: bool = False
    judges_curated: bool = False
    is_used: Callable[[Config], bool] = is_always_used


def measuring_filter(
    *, reads_texts: bool = True, reads_languages: bool = False, edits: bool = False, after: Iterable[str] = ()
) -> Filter:
    """A filter whose class measures documents one by one, and says the same of itself (filters/framework/score.py)."""
    inputs = {"documents": DOCUMENTS, "verdicts": VERDICTS_BEFORE}
    if reads_texts:
        inputs["edits"] = EDITS_BEFORE
    if reads_languages:
        inputs["languages"] = LANGUAGES
        after = dict.fromkeys([*after, stage_of(LANGUAGES)])
    steps = {"score": Step(inputs=inputs, per="shard", exempts=edits), "select": SELECT}
    return Filter(steps, after=tuple(after), edits="score" if edits else "")


def stage_of(step: str) -> str:
    """`language` of `language.score`."""
    return step.partition(".")[0]


def skipped_by(step: str, config: Config) -> list[str]:
    """The sources whose `skip_filters` names the filter of a step, sorted: it keeps their documents whatever it measures."""
    sources = config["ingest"]["extract"]["sources"]
    return sorted(source["name"] for source in sources if stage_of(step) in source.get("skip_filters", []))


def pick_keys(config: Config, step: str, *keys: str) -> Config:
    """Keys of another step."""
    return {key: lookup(config, step)[key] for key in keys}
