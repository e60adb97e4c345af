"""The rules that the filters of a run declare in their `select`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from crawl2llm.filters.framework.rules import Rule, Rules
from crawl2llm.filters.heuristics.thresholds import read_thresholds

CALIBRATE = "heuristics.calibrate"  # the step whose thresholds a run adds to those of its config


def rules_of(filter_: str, settings: Mapping[str, Any], calibrations: Sequence[Path]) -> Rules:
    """The rules of a filter; none of one that judges documents by others. settings: of its `select`, complete.

    calibrations: manifests of CALIBRATE.
    """
    module = import_module(f"crawl2llm.filters.{filter_}.select")
    if not hasattr(module, "rules"):
        return []
    rules: Rules = module.rules({**settings, "calibrated": read_thresholds(calibrations)})
    return rules


def measuring_steps(rules: Rules) -> list[str]:
    """The steps of a filter whose signals its rules compare."""
    return list(dict.fromkeys(rule.step for rule in rules if isinstance(rule, Rule)))
