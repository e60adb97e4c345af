"""What a step is told beside its own settings: those of other steps, and which models, sources and variants there are.

All of it is in the step's fingerprint. Steps that are not here are told nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from crawl2llm.chain import halving, model_registry, shared_reference, sources
from crawl2llm.chain.config_schema import leaves, tracked
from crawl2llm.chain.filter_order import EXEMPTING, filters, searched, verdicts
from crawl2llm.chain.locked_packages import QUANTIZE_LOCK, lock_digest
from crawl2llm.chain.model_registry import QUANTIZE_STEP
from crawl2llm.chain.steps import (
    CALIBRATE,
    COMMON,
    COMPARE_ALL,
    CURVE,
    DECONTAMINATE,
    EVALUATION,
    FETCH,
    HALVE,
    INSPECT,
    ITEMS,
    LAST,
    LIST,
    MASKED,
    MIX,
    PLAN,
    PUBLIC,
    REFERENCE,
    RUNG,
    SETS,
    STAGE,
    WHATIF,
    skipped_by,
)
from crawl2llm.core.nested_dicts import flat, has, lookup

Config = dict[str, Any]


def some(config: Config, step: str, *keys: str) -> Config:
    """Keys of another step."""
    return {key: lookup(config, step)[key] for key in keys}


def for_reference(config: Config, task: str) -> Config:
    """The thresholds that hold for the language that others are calibrated to."""
    select = tracked(config, "heuristics.select")
    return {"select": {key: value for key, value in select.items() if key != "languages"}}


def masks(config: Config, task: str) -> Config:
    """A run may mask, search for evaluation sets, or both."""
    found: Config = {}
    if "pii" in config["filters"]:
        found["pii"] = {name: tracked(config, f"pii.{name}") for name in ("score", "select")}
    if DECONTAMINATE in filters(config):
        found[DECONTAMINATE] = {"overlap_max": config[DECONTAMINATE]["select"]["overlap_max"]}
    return found


def searching(config: Config) -> Config:
    """`tasks` and `data` of decontaminate.index; where they are null those of evaluate.public, so that to name these reruns nothing."""
    tasks, data = searched(config), lookup(config, SETS)["data"]
    data = lookup(config, PUBLIC)["data"] if data is None else data
    return {"tasks": tasks, "data": data if tasks else []}


def near(config: Config, task: str) -> Config:
    """What main's dedup and split call a near-duplicate."""
    main = shared_reference.told(config)
    return {
        "similarity": main["corpus"]["split"]["similarity"],
        "signature": tracked(main, "dedup.signature"),
    }


def judging(config: Config, task: str) -> Config:
    """The filters, the settings of their select steps, and the sources that skip them."""
    names = verdicts(filters(config))[1:]
    return {
        "steps": names,
        "select": {name: tracked(config, name) for name in names},
        "exempt": {name: skipped_by(name, config) for name in names},
    }


def set_by_variants(config: Config, task: str) -> Config:
    """What the variants of a run set, without placement keys; `main`: the values of these keys there; which of them are seeds."""
    ignored = {path for path, node in leaves() if node.get("placement")}
    own = {
        name: {key: value for key, value in flat(overlay).items() if key not in ignored}
        for name, overlay in config["variants"].items()
    }
    keys = sorted({key for overlay in own.values() for key in overlay})
    main = {key: lookup(config, key) for key in keys if has(config, key)}
    return {"variants": own, "main": main, "seed_keys": config["sweep"]["seed_keys"]}


def exempt(step: str, config: Config, task: str) -> Config:
    """The sources whose documents it keeps whatever it measures (`skip_filters`), which ingest.extract is not told."""
    return {"skipped_by": skipped_by(step, config)}


def training(config: Config, task: str) -> Config:
    """The settings of pretrain.train."""
    return {"train": tracked(config, model_registry.BASE_STEP)}


# By step: (complete config, task) → more settings. task: the model, of a step that has a task for each.
TOLD: dict[str, Callable[[Config, str], Config]] = {
    **{step: partial(exempt, step) for step in EXEMPTING},
    CALIBRATE: lambda config, task: {**for_reference(config, task), **exempt(CALIBRATE, config, task)},
    **dict.fromkeys(MASKED, masks),
    "finetune.pairs": lambda config, task: {
        **masks(config, task), **({} if model_registry.made_by(config, "finetune.train") else {"trains": False}),
    },
    LIST: lambda config, task: sources.listing(config),
    FETCH: lambda config, task: sources.fetching(config),
    ITEMS: lambda config, task: {"heldout": some(config, EVALUATION, "max_tokens", "seed")},
    # What the card says of sources and languages, and the models that it is made from:
    model_registry.EXPORT_STEP: lambda config, task: {
        **model_registry.told(config), "lineage": model_registry.lineage(config, task),
    },
    QUANTIZE_STEP: lambda config, task: (
        {"tools": lock_digest(QUANTIZE_LOCK)} if model_registry.calibrates(config, task) else {}
    ),
    STAGE: lambda config, task: some(config, PUBLIC, "presets", "data", "hub", "limit", "seed"),
    SETS: lambda config, task: {**searching(config), **some(config, PUBLIC, "hub")},
    REFERENCE: near,
    COMMON: lambda config, task: {"curve": lookup(config, CURVE)["every"] if task == model_registry.BASE else 0},
    **dict.fromkeys((WHATIF, INSPECT), judging),
    # Its contender, and the judgement before:
    RUNG: lambda config, task: halving.settings(task, config) if task else {},
    HALVE: lambda config, task: halving.judging(config) if halving.is_used(config) else {},
    COMPARE_ALL: set_by_variants,
    **dict.fromkeys((MIX, PLAN), training),
    LAST: lambda config, task: {"models": model_registry.listed(config)},
}  # fmt: skip


def of(step: str, config: Config, task: str = "") -> Config:
    """What a step's task is told under a complete config."""
    return TOLD[step](config, task) if step in TOLD else {}
