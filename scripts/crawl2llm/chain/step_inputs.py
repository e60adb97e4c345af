"""What a step is told beside its own settings: those of other steps, and which models, sources and variants there are.

All of it is in the step's fingerprint. Steps that are not here are told nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from crawl2llm.chain import halving, model_registry, shared_reference, sources
from crawl2llm.chain.config_schema import schema_leaves, tracked_section
from crawl2llm.chain.filter_order import EXEMPTING, searched_tasks, used_filters, verdict_steps
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
    LIST,
    MASKING_STEPS,
    MIX,
    PLAN,
    PUBLIC,
    REFERENCE,
    REPORT_STEP,
    RUNG,
    SETS,
    STAGE,
    WHATIF,
    skipped_by,
)
from crawl2llm.core.nested_dicts import flatten, has_path, lookup

Config = dict[str, Any]


def pick_keys(config: Config, step: str, *keys: str) -> Config:
    """Keys of another step."""
    return {key: lookup(config, step)[key] for key in keys}


def reference_thresholds(config: Config, task: str) -> Config:
    """The thresholds that hold for the language that others are calibrated to."""
    select = tracked_section(config, "heuristics.select")
    return {"select": {key: value for key, value in select.items() if key != "languages"}}


def masking_settings(config: Config, task: str) -> Config:
    """A run may mask, search for evaluation sets, or both."""
    settings: Config = {}
    if "pii" in config["filters"]:
        settings["pii"] = {name: tracked_section(config, f"pii.{name}") for name in ("score", "select")}
    if DECONTAMINATE in used_filters(config):
        settings[DECONTAMINATE] = {"overlap_max": config[DECONTAMINATE]["select"]["overlap_max"]}
    return settings


def search_settings(config: Config) -> Config:
    """`tasks` and `data` of decontaminate.index; where they are null those of evaluate.public, so that to name these reruns nothing."""
    tasks, data = searched_tasks(config), lookup(config, SETS)["data"]
    data = lookup(config, PUBLIC)["data"] if data is None else data
    return {"tasks": tasks, "data": data if tasks else []}


def near_duplicate_settings(config: Config, task: str) -> Config:
    """What main's dedup and split call a near-duplicate."""
    main = shared_reference.main_or_own_config(config)
    return {
        "similarity": main["corpus"]["split"]["similarity"],
        "signature": tracked_section(main, "dedup.signature"),
    }


def select_settings(config: Config, task: str) -> Config:
    """The filters, the settings of their select steps, and the sources that skip them."""
    names = verdict_steps(used_filters(config))[1:]
    return {
        "steps": names,
        "select": {name: tracked_section(config, name) for name in names},
        "exempt": {name: skipped_by(name, config) for name in names},
    }


def variant_settings(config: Config, task: str) -> Config:
    """What the variants of a run set, without placement keys; `main`: the values of these keys there; which of them are seeds."""
    ignored = {path for path, node in schema_leaves() if node.get("placement")}
    overlays = {
        name: {key: value for key, value in flatten(overlay).items() if key not in ignored}
        for name, overlay in config["variants"].items()
    }
    keys = sorted({key for overlay in overlays.values() for key in overlay})
    main = {key: lookup(config, key) for key in keys if has_path(config, key)}
    return {"variants": overlays, "main": main, "seed_keys": config["sweep"]["seed_keys"]}


def exempt_sources(step: str, config: Config, task: str) -> Config:
    """The sources whose documents it keeps whatever it measures (`skip_filters`), which ingest.extract is not told."""
    return {"skipped_by": skipped_by(step, config)}


def training_settings(config: Config, task: str) -> Config:
    """The settings of pretrain.train."""
    return {"train": tracked_section(config, model_registry.BASE_STEP)}


# By step: (complete config, task) → more settings. task: the model, of a step that has a task for each.
EXTRA_SETTINGS: dict[str, Callable[[Config, str], Config]] = {
    **{step: partial(exempt_sources, step) for step in EXEMPTING},
    CALIBRATE: lambda config, task: {**reference_thresholds(config, task), **exempt_sources(CALIBRATE, config, task)},
    **dict.fromkeys(MASKING_STEPS, masking_settings),
    "finetune.pairs": lambda config, task: {
        **masking_settings(config, task), **({} if model_registry.models_made_by(config, "finetune.train") else {"trains": False}),
    },
    LIST: lambda config, task: sources.listing_settings(config),
    FETCH: lambda config, task: sources.fetching_settings(config),
    ITEMS: lambda config, task: {"heldout": pick_keys(config, EVALUATION, "max_tokens", "seed")},
    # What the card says of sources and languages, and the models that it is made from:
    model_registry.EXPORT_STEP: lambda config, task: {
        **model_registry.card_facts(config), "lineage": model_registry.lineage(config, task),
    },
    QUANTIZE_STEP: lambda config, task: (
        {"tools": lock_digest(QUANTIZE_LOCK)} if model_registry.is_calibrated(config, task) else {}
    ),
    STAGE: lambda config, task: pick_keys(config, PUBLIC, "presets", "data", "hub", "limit", "seed"),
    SETS: lambda config, task: {**search_settings(config), **pick_keys(config, PUBLIC, "hub")},
    REFERENCE: near_duplicate_settings,
    COMMON: lambda config, task: {"curve": lookup(config, CURVE)["every"] if task == model_registry.BASE else 0},
    **dict.fromkeys((WHATIF, INSPECT), select_settings),
    # Its contender, and the judgement before:
    RUNG: lambda config, task: halving.rung_settings(task, config) if task else {},
    HALVE: lambda config, task: halving.judging_settings(config) if halving.is_used(config) else {},
    COMPARE_ALL: variant_settings,
    **dict.fromkeys((MIX, PLAN), training_settings),
    REPORT_STEP: lambda config, task: {"models": model_registry.model_rows(config)},
}  # fmt: skip


def extra_settings(step: str, config: Config, task: str = "") -> Config:
    """What a step's task is told under a complete config."""
    return EXTRA_SETTINGS[step](config, task) if step in EXTRA_SETTINGS else {}
