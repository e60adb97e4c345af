"""The filters: the steps of each, which have to come before it, and which of them a run uses, in what order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

DOCUMENTS = "ingest.extract"
# In `needs`, what depends on the filters that a run uses (`filters` in the config) and on their order:
VERDICTS_BEFORE = "the verdicts before"  # the step with the newest verdicts: of the filter before, or FIRST
LANGUAGES_BEFORE = "the languages before"  # language.score, where that filter comes before
EDITS_BEFORE = "the edits before"  # the steps of the filters before that edit texts
ALL_VERDICTS = "all verdicts"  # all verdicts, in their order
FIRST_VERDICTS = "ingest.check"  # the verdicts before those of the first filter


@dataclass(frozen=True)
class Step:
    """One step: the steps it reads from, and the wildcard that numbers its tasks (None: one task).

    common: steps that it reads from of `main`, in every variant; none of them is among its `needs`.
    """

    needs: tuple[str, ...] = ()
    per: str | None = None
    common: tuple[str, ...] = ()


DECONTAMINATE = "decontaminate"  # used where it is among the filters, and there is something to search for
TEXT = (DOCUMENTS, VERDICTS_BEFORE, EDITS_BEFORE)  # what reads the texts that are still there
SELECT = Step((".score",), per="shard")  # judges each document by its own measures
SCORES = (".score", ".fasttext", ".transformers", ".kenlm")  # of quality: what scores documents
SCORE_AND_SELECT = {"score": Step(TEXT, per="shard"), "select": SELECT}


@dataclass(frozen=True)
class Filter:
    """Steps that end with `select`, which writes a verdict on every document that got so far: shard by shard where a document's
    own measures decide, over all shards where others' do (duplicates, the best tenth).

    `.score` among needs is the filter's own step. after: filters that have to come before it. edits: its step that writes which
    parts of a text are removed or replaced (formats/spans.py). masks: what it replaces would hide an item of an evaluation set, so
    decontamination reads what stood there. exempting: its steps that are told which sources skip it. judges_curated: documents of curated
    sources may be dropped too.
    """

    steps: dict[str, Step] = field(default_factory=lambda: SCORE_AND_SELECT)
    after: tuple[str, ...] = ()
    edits: str = ""
    masks: bool = False
    exempting: tuple[str, ...] = ("select",)
    judges_curated: bool = False


FILTERS: dict[str, Filter] = {
    "url": Filter({"score": Step((DOCUMENTS, VERDICTS_BEFORE), per="shard"), "select": SELECT}),
    "language": Filter(
        {
            "score": Step(TEXT, per="shard"),
            "compare": Step((*TEXT, ".score"), per="shard"),
            "select": Step((".score", ".compare"), per="shard"),
        },
        judges_curated=True,
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
    "licence": Filter({"score": Step((DOCUMENTS, VERDICTS_BEFORE), per="shard"), "select": SELECT}),
    "sourcecode": Filter(),
    "toxicity": Filter({"score": Step((*TEXT, "language.score"), per="shard"), "select": SELECT}, after=("language",)),
    "pii": Filter(
        {"score": Step((*TEXT, "language.score"), per="shard"), "select": SELECT},
        after=("language",),
        edits="select",
        masks=True,
    ),
    "dedup": Filter(
        {
            "signature": Step(TEXT, per="shard"),
            "exact": Step((".signature",)),
            "band": Step((".signature", ".exact"), per="band"),
            "sets": Step((".band", ".exact", ".signature", DOCUMENTS, EDITS_BEFORE), per="shard"),
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
            # Used where they are asked for (chain/scorers.py):
            "ngrams": Step((".train", *TEXT)),
            "fasttext": Step(TEXT, per="shard"),
            "transformers": Step(TEXT, per="shard"),
            "lm": Step((*TEXT, LANGUAGES_BEFORE)),
            "kenlm": Step((".lm", *TEXT, LANGUAGES_BEFORE), per="shard"),
            "calibrate": Step((".train", ".lm", *SCORES)),
            "combine": Step((".calibrate", *SCORES), per="shard"),
            "select": Step((".score", ".combine", "language.score")),
        },
        exempting=("train", "lm", "calibrate", "select"),
    ),
    DECONTAMINATE: Filter(
        {"index": Step(), "score": Step((".index", *TEXT), per="shard"), "select": SELECT},
        edits="select",
        judges_curated=True,
    ),
}
EXEMPTING = frozenset(f"{name}.{step}" for name, found in FILTERS.items() for step in found.exempting)


def filter_steps() -> dict[str, Step]:
    """The steps of all filters, in order."""
    return {
        f"{name}.{step}": Step(tuple(name + need if need.startswith(".") else need for need in facts.needs), facts.per)
        for name, spec in FILTERS.items()
        for step, facts in spec.steps.items()
    }


def searched_tasks(config: dict[str, Any]) -> list[str]:
    """The public tasks that decontamination searches for: those that are evaluated, or those that `decontaminate.index.tasks` names."""
    fixed = config["decontaminate"]["index"]["tasks"]
    return sorted(config["evaluate"]["public"]["presets"] if fixed is None else fixed)


def used_filters(config: dict[str, Any]) -> list[str]:
    """The filters of a run in their order: of those that the config lists, not decontamination where there is nothing to search for."""
    searches = bool(searched_tasks(config) or config["decontaminate"]["index"]["files"])
    return [name for name in config["filters"] if name != DECONTAMINATE or searches]


def order_problem(filters: Sequence[str]) -> str | None:
    """Why filters cannot be used in this order, in words; None where they can."""
    for number, name in enumerate(filters):
        for other in FILTERS[name].after:
            if other not in filters[:number]:
                return f"filters is {list(filters)!r}: {name} needs {other} before it"
    return None


def filters_before(filters: Sequence[str], until: str | None) -> Sequence[str]:
    """The filters before `until`; all where it is none of them."""
    return filters[: filters.index(until)] if until in filters else filters


def verdict_steps(filters: Sequence[str], until: str | None = None) -> list[str]:
    """The steps that judge documents, in order: all, or those before the filter `until`."""
    return [FIRST_VERDICTS, *(f"{name}.select" for name in filters_before(filters, until))]


def edit_steps(filters: Sequence[str], until: str | None = None) -> list[str]:
    """The steps that say what is removed from texts or replaced: of all filters, or of those before `until` that it reads through."""
    earlier = {name: FILTERS[name] for name in filters_before(filters, until)}
    read = {name: spec for name, spec in earlier.items() if spec.edits and not (spec.masks and until == DECONTAMINATE)}
    return [f"{name}.{of.edits}" for name, of in read.items()]
