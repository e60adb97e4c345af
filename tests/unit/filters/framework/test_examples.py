"""Every rule that a filter declares drops its example, which no other rule drops, and keeps another document."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crawl2llm.chain.filter_order import FILTERS
from crawl2llm.chain.settings_registry import settings_class
from crawl2llm.core.settings import Settings
from crawl2llm.filters.framework.columns import Columns
from crawl2llm.filters.framework.examples import Examples
from crawl2llm.filters.framework.rules import Rule, Rules, failed_rules


def select_module(name: str) -> ModuleType:
    return import_module(f"crawl2llm.filters.{name}.select")


DECLARING = [name for name in FILTERS if hasattr(select_module(name), "rules")]


def examples_of(name: str) -> tuple[Examples, Settings, Rules]:
    """(examples, the settings that they ask for, the rules under these)."""
    examples: Examples = import_module(f"crawl2llm.filters.{name}.examples").EXAMPLES
    settings = settings_class(f"{name}.select").model_validate(examples.settings)
    return examples, settings, select_module(name).rules(settings)


def columns_of(name: str, row: Mapping[str, Any]) -> Columns:
    """A row as signals of the filter's steps; what it lacks is null."""
    modules = [import_module(f"crawl2llm.filters.{name}.{step}") for step in FILTERS[name].steps if step != "select"]
    modules += [import_module("crawl2llm.filters.edit_filter")]
    types = {field.name: field.type for module in modules for field in getattr(module, "SIGNAL", ())}
    columns = {
        column: pa.array([row.get(column, [] if pa.types.is_list(kind) else None)])
        if pa.types.is_integer(kind)  # a threshold need not be whole
        else pa.array([row.get(column, [] if pa.types.is_list(kind) else None)], kind)
        for column, kind in types.items()
    }
    assert row.keys() <= columns.keys()
    return Columns([pa.table(columns)], np.zeros(1, np.int64), [row.get("language", "")])


@pytest.mark.parametrize("name", DECLARING)
def test_a_rule_drops_its_example_alone(name: str) -> None:
    examples, settings, rules = examples_of(name)
    assert failed_rules(rules, columns_of(name, examples.passes), settings) == [[]]
    for rule, change in examples.drops:
        (failures,) = failed_rules(rules, columns_of(name, {**examples.passes, **change}), settings)
        assert [failure.rule for failure in failures] == [rule]


@pytest.mark.parametrize("name", DECLARING)
def test_every_rule_has_an_example(name: str) -> None:
    examples, settings, rules = examples_of(name)
    documents = [columns_of(name, {**examples.passes, **change}) for _, change in examples.drops]
    without = [rule for rule in rules if not any(list(rule.failures(document, settings)) for document in documents)]
    assert without == []


@pytest.mark.parametrize("name", DECLARING)
def test_every_key_that_is_a_threshold_is_declared(name: str) -> None:
    """A threshold is a key of the settings, by its dotted path."""
    _, settings, rules = examples_of(name)
    for rule in rules:
        if isinstance(rule, Rule) and isinstance(rule.threshold, str):
            assert rule.threshold_for_all(settings) is not None, f"{rule.name} is off under the examples' settings"
