"""The settings of all stages and filters, which each declares in its `settings.py`: collected by name, a module when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from pydantic import ValidationError, create_model

from crawl2llm.chain.model_registry import PUBLISHED_STEP, step_keys
from crawl2llm.chain.run_settings import RunSettings
from crawl2llm.chain.stage_names import all_names, package_of
from crawl2llm.core.settings import Settings, schema_node, section


def settings_class(path: str) -> type[Settings]:
    """The class of the section at a dotted path, such as `language.score`. Raises KeyError for a path of none."""
    first, *rest = path.split(".")
    kind = _class_of_stage(first)
    for key in rest:
        fields = {each.alias or name: each for name, each in kind.model_fields.items()}
        field = fields[key].annotation
        if not (isinstance(field, type) and issubclass(field, Settings)):
            raise KeyError(path)
        kind = field
    return kind


_plugin_classes: dict[str, type[Settings]] = {}  # by filter


def take_plugin_classes(classes: Mapping[str, type[Settings]]) -> None:
    """Let the sections of plug-ins' filters have these classes, by filter, and forget those before."""
    _plugin_classes.clear()
    _plugin_classes.update(classes)
    for function in (_class_of_stage, config_class, stage_node, config_node):
        function.cache_clear()


@cache
def _class_of_stage(name: str) -> type[Settings]:
    if name in _plugin_classes:
        return _plugin_classes[name]
    if name not in all_names():
        raise KeyError(name)
    module = import_module(f"crawl2llm.{package_of(name)}.{name}.settings")
    kind: type[Settings] = getattr(module, f"{name.capitalize()}Settings")
    return kind


@cache
def config_class() -> type[RunSettings]:
    """The class of the whole config."""
    sections: dict[str, Any] = {name: (_class_of_stage(name), section()) for name in all_names()}
    return create_model("Config", __base__=RunSettings, **sections)


@cache
def stage_node(name: str) -> dict[str, Any]:
    """The JSON schema of the section of a stage or a filter, or of a key of the run itself. Callers must not change it."""
    if name not in all_names():
        return dict(schema_node(RunSettings)["properties"][name])
    return schema_node(_class_of_stage(name))


@cache
def config_node() -> dict[str, Any]:
    """The JSON schema of the whole config. Callers must not change it."""
    node = schema_node(RunSettings)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "crawl2llm configuration",
        **{word: node[word] for word in ("type", "additionalProperties")},
        "properties": {**node["properties"], **{name: stage_node(name) for name in all_names()}},
    }


def is_accepted(config: Any) -> bool:
    """Whether every key and value of a config, or of a part of one, is as declared; of a model, also the keys of its step's section."""
    try:
        config_class().model_validate(config)
        for entry in (config.get("models") or {}).values():
            if entry is not None:
                settings_class(entry.get("step", PUBLISHED_STEP)).model_validate(step_keys(entry))
    except ValidationError:
        return False
    return True
