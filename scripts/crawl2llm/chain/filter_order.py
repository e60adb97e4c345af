"""The filters, which each declares in its `steps.py`, and those of plug-ins: which of them a run uses, and in what order."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from crawl2llm.chain.stage_names import FILTER_NAMES
from crawl2llm.chain.step import Config, Filter

FIRST_VERDICTS = "ingest.check"  # the verdicts before those of the first filter
DECONTAMINATE = "decontaminate"
FILTERS: dict[str, Filter] = {name: import_module(f"crawl2llm.filters.{name}.steps").FILTER for name in FILTER_NAMES}


def ordinary_filters() -> list[str]:
    """Those that score each document and judge it by its scores, with no other step: their rules are a loop (rules/filters.smk)."""
    return [name for name, spec in FILTERS.items() if tuple(spec.steps) == ("score", "select")]


def used_filters(config: Config) -> list[str]:
    """The filters of a run in their order: of those that the config lists, those that have something to do."""
    return [name for name in config["filters"] if FILTERS[name].is_used(config)]


def order_problem(filters: Sequence[str]) -> str | None:
    """Why filters cannot be used in this order, in words; None if they can."""
    for number, name in enumerate(filters):
        for other in FILTERS[name].after:
            if other not in filters[:number]:
                return f"filters is {list(filters)!r}: {name} needs {other} before it"
    return None


def filters_before(filters: Sequence[str], until: str | None) -> Sequence[str]:
    """The filters before `until`; all if it is none of them."""
    return filters[: filters.index(until)] if until in filters else filters


def verdict_steps(filters: Sequence[str], until: str | None = None) -> list[str]:
    """The steps that judge documents, in order: all, or those before the filter `until`."""
    return [FIRST_VERDICTS, *(f"{name}.select" for name in filters_before(filters, until))]


def edit_steps(filters: Sequence[str], until: str | None = None) -> list[str]:
    """The steps that say what is removed from texts or replaced: of all filters, or of those before `until` that it reads through."""
    reads_masked = until in FILTERS and FILTERS[until].reads_masked
    earlier = {name: FILTERS[name] for name in filters_before(filters, until)}
    return [
        f"{name}.{spec.edits}" for name, spec in earlier.items() if spec.edits and not (spec.masks and reads_masked)
    ]
