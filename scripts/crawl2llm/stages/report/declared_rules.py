"""The rules that the filters of a run declare in their `select`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from crawl2llm.chain import plugins
from crawl2llm.chain.step import stage_of
from crawl2llm.core.settings import Settings
from crawl2llm.filters.framework import plugin
from crawl2llm.filters.framework.rules import Rule, Rules
from crawl2llm.filters.heuristics.thresholds import read_thresholds

CALIBRATE = "heuristics.calibrate"  # the step whose thresholds a run adds to those of its config


def rules_of(filter_: str, settings: Settings, calibrations: Sequence[Path]) -> Rules:
    """The rules of a filter; none of one that judges documents by others. settings: of its `select`.

    calibrations: manifests of CALIBRATE.
    """
    if filter_ in plugins.LOADED:
        return plugin.rules_of(filter_, settings)
    module = import_module(f"crawl2llm.filters.{filter_}.select")
    if not hasattr(module, "rules"):
        return []
    calibrated = [read_thresholds(calibrations)] if filter_ == stage_of(CALIBRATE) else []
    rules: Rules = module.rules(settings, *calibrated)
    return rules


def measuring_steps(rules: Rules) -> list[str]:
    """The steps of a filter whose signals its rules compare."""
    return list(dict.fromkeys(rule.step for rule in rules if isinstance(rule, Rule)))
