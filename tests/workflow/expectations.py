"""What is expected to run again if a key is changed: made of the settings, except for what `rerun_matrix.yaml` says by hand.

A key of a step that the tiny run has reruns that step; a placement key, and one of a step that the run does not have, reruns nothing.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from crawl2llm.chain import config, config_schema, steps
from crawl2llm.core.nested_dicts import lookup

HERE = Path(__file__).parent
TABLE: dict[str, Any] = yaml.safe_load((HERE / "rerun_matrix.yaml").read_text(encoding="utf-8"))


def other_value(node: dict[str, Any], value: Any) -> Any:
    """Another value that a key takes: the next choice, the other boolean, the next number. KeyError for a key of another type."""
    if "enum" in node:
        choices = node["enum"]
        return choices[(choices.index(value) + 1) % len(choices)]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and "integer" in config_schema.type_names(node):
        return value + 1 if value < node.get("maximum", value + 1) else value - 1
    if isinstance(value, int | float):
        return round(value * 0.9 + 0.01, 6)  # not 0 for 0, and within a range that ends at 1
    raise KeyError(value)


@cache
def _tiny_config() -> dict[str, Any]:
    return config.validate(yaml.safe_load((HERE / "tiny.yaml").read_text(encoding="utf-8")))


@cache
def _used_steps() -> frozenset[str]:
    return frozenset(steps.used_steps(_tiny_config()))


def made_expectation(path: str, node: dict[str, Any]) -> dict[str, Any]:
    """{to, runs} of a key as its settings make it; without `to` for a key whose other values nothing tells."""
    step = ".".join(path.split(".")[:2])
    runs = None if node.get("placement") or step not in _used_steps() else step
    try:
        return {"to": other_value(node, lookup(_tiny_config(), path)), "runs": runs}
    except KeyError:
        return {"runs": runs}


def expectations_of(path: str, node: dict[str, Any]) -> list[dict[str, Any]]:
    """The expectations of a key: those of the table, with what this leaves out; each may lack `to`, if nobody says it."""
    entry = TABLE.get(path, {})
    return [{**made_expectation(path, node), **each} for each in (entry if isinstance(entry, list) else [entry])]


@cache
def matrix() -> dict[str, list[dict[str, Any]]]:
    """The expectations of every key of the config, by its dotted path."""
    return {path: expectations_of(path, node) for path, node in config_schema.schema_leaves()}
