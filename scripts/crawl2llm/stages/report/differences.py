"""In which keys the models of a run that the same step makes differ, by the config that the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from crawl2llm.chain import config_schema, model_registry
from crawl2llm.chain.model_registry import MAKERS
from crawl2llm.stages.report.models import Model


def dotted_leaves(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every leaf of nested mappings; an empty mapping is a leaf."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from dotted_leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def yaml_text(value: Any) -> str:
    """A value as the config file has it."""
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def difference_tables(config: dict[str, Any] | None, models: list[Model]) -> list[dict[str, Any]]:
    """For each step that made several of `models`: {step, models, rows of (key, a value for each)}; no row where none differs.

    config: complete; None if none is known. Placement keys, which decide no byte of a model, are left out.
    """
    step_tables = []
    for step in MAKERS if config else ():
        names = [model.name for model in models if model.step == step and config and model.name in config["models"]]
        if len(names) < 2 or config is None:
            continue
        model_settings = [
            {"from": model_registry.parent(config, name)}
            | dict(
                dotted_leaves(config_schema.tracked_section(model_registry.config_for_model(config, step, name), step))
            )
            for name in names
        ]
        keys = dict.fromkeys(key for keys in model_settings for key in keys)
        rows = [(key, [yaml_text(keys[key]) if key in keys else "default" for keys in model_settings]) for key in keys]
        step_tables.append({"step": step, "models": names, "rows": [row for row in rows if len(set(row[1])) > 1]})
    return step_tables


def contents_entries(step_tables: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The entry of the page's contents for what `difference_tables` returned."""
    return [("differences", "Differences between models")] if step_tables else []
