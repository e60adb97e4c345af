"""The schema of the configuration: its leaves, which of them decide bytes, and its errors in words.

It is made from the settings that the stages and filters declare (chain/settings_registry.py), as JSON Schema 2020-12 with the marks of
core/settings.py beside its keywords. Nothing here imports anything heavy: the Snakefile is parsed with it.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from crawl2llm.chain import model_registry, settings_registry
from crawl2llm.core import pinned_names, secret_masking
from crawl2llm.core.nested_dicts import has_path, lookup
from crawl2llm.core.phrases import and_more
from crawl2llm.core.settings import Settings
from crawl2llm.core.yaml_hints import value_hint

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

AUTO = "^auto$"  # the pattern of a leaf that also takes `auto`: the step decides by the corpus


HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # what may be one, or a folder below this one
MODEL_FILES = (".gguf", ".json", ".model", ".tiktoken")
FEW = 12  # keys of a section that an error lists


def _is_integer(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: Any, value: Any) -> bool:
    return _is_integer(checker, value) or (isinstance(value, float) and math.isfinite(value))


def schema_validator(tree: dict[str, Any]) -> Draft202012Validator:
    """What checks a config against a schema. JSON Schema takes 4.0 for an integer, and NaN for within any range."""
    from jsonschema import Draft202012Validator  # a program that is given a fingerprint checks none
    from jsonschema.validators import extend

    types = Draft202012Validator.TYPE_CHECKER.redefine_many({"integer": _is_integer, "number": _is_number})
    validator: Draft202012Validator = extend(Draft202012Validator, type_checker=types)(tree)
    return validator


def schema() -> dict[str, Any]:
    """The whole schema. Callers must not change it."""
    return settings_registry.config_node()


def schema_errors(config: Any) -> list[ValidationError]:
    """What the schema refuses of a config, or of a part of one, by place; of a model, also the keys of its step's section.

    The classes of the settings decide, which takes a tenth of the time; the errors of what they refuse are those of the schema.
    """
    if settings_registry.is_accepted(config):
        return []
    models = config.get("models") if isinstance(config, dict) else None
    checking = schema_validator(model_registry.schema_with_models(schema(), models))
    return errors_to_show(sorted(checking.iter_errors(config), key=lambda error: list(map(str, error.absolute_path))))


def is_section(node: dict[str, Any]) -> bool:
    """Whether a schema node is a section (an object with named keys) and not a leaf."""
    return "properties" in node


def schema_leaves(node: dict[str, Any] | None = None, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every leaf of the schema as (dotted path, schema node), in the order of the file."""
    for key, child in (node or schema())["properties"].items():
        key_path = f"{path}.{key}" if path else key
        if is_section(child):
            yield from schema_leaves(child, key_path)
        else:
            yield key_path, child


def placement_keys_in(settings: Mapping[str, Any]) -> list[str]:
    """Which of these dotted keys say where or how fast a step runs, and nothing of what it writes."""
    placement_paths = {path for path, node in schema_leaves() if node.get("placement")}
    return [path for path in settings if path in placement_paths]


def errors_to_show(errors: Iterable[ValidationError]) -> list[ValidationError]:
    """The errors without what else is wrong with a value of the wrong type, which says all."""
    all_errors = list(errors)
    typed = {error.json_path for error in all_errors if error.validator == "type"}
    return [error for error in all_errors if error.validator == "type" or error.json_path not in typed]


def error_lines(error: ValidationError) -> list[str]:
    """A line, or several, on what the schema refuses: key, value and what is allowed."""
    path = ".".join(str(part) for part in error.absolute_path)
    where = path or "the top level"
    rule, value, value_text = error.validator, error.validator_value, repr(error.instance)
    value_text = secret_masking.mask(value_text)
    value_text = value_text if len(value_text) <= 80 else value_text[:77] + "..."
    if isinstance(error.schema, dict) and error.schema.get("secret"):
        value_text = "a value that is not shown, since it may be a secret"
    if rule == "additionalProperties" and isinstance(error.schema, dict):
        return [
            _unknown_key_line(path, key, error.schema)
            for key in error.instance
            if key not in error.schema["properties"]
        ]
    if rule == "pattern" and "propertyNames" in error.absolute_schema_path:
        return [f"{where} has the key {value_text}; allowed are {error.schema['form']}"]
    if rule == "pattern":
        hint = value_hint(error.instance, type_names(error.schema)) if value == AUTO else ""
        return [f"{where} is {value_text}{_allowed_text(error.schema)}{hint}"]
    if rule == "type":
        types = type_names(error.schema)
        if types == ["object"] and (keys := list(error.schema.get("properties", {}))):
            first_key = error.schema["properties"][keys[0]]
            fits = "properties" not in first_key and schema_validator(first_key).is_valid(error.instance)
            example = f", such as {{{keys[0]}: {error.instance}}}" if fits and error.instance is not None else ""
            if "hub" in keys and isinstance(error.instance, str):
                example = f"; write {place_forms(error.instance)}"
            return [f"{where} is {value_text}; it is a section with the keys {', '.join(keys)}{example}"]
        text = f"{where} is {value_text}, which is not of type {' or '.join(types)}{_allowed_text(error.schema)}"
        if types == ["array"] and isinstance(error.instance, str | int | float):
            text += f"; write a list: [{error.instance}]"
        if [*error.absolute_path][-2:-1] == ["models"] and isinstance(error.instance, str):
            text += f"; of a published model write {place_forms(error.instance)}"
        return [text + value_hint(error.instance, types)]
    if rule == "enum":
        close = difflib.get_close_matches(str(error.instance), [str(v) for v in value], n=1)
        near = f" (did you mean {close[0]!r}?)" if close else ""
        kinds_of = {"string": str, "integer": int}
        enum_types = [name for name, kind in kinds_of.items() if any(isinstance(choice, kind) for choice in value)]
        choices = ", ".join("null" if choice is None else repr(choice) for choice in value)
        return [f"{where} is {value_text}; allowed are {choices}{near}{value_hint(error.instance, enum_types)}"]
    if rule == "required":
        missing = [key for key in value if key not in error.instance]
        return [f"{where} lacks the key {', '.join(map(repr, missing))}"]
    if rule in {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}:
        return [f"{where} is {value_text}, out of range{_allowed_text(error.schema)}"]
    return [f"{where} is {value_text}: {error.message}{_allowed_text(error.schema)}"]


def place_forms(place: str) -> str:
    """How a folder, a file or a name on the hub is written where a published model, or a ready tokenizer, is asked for."""
    of_path = f"{{path: {place}}}"
    if HUB_NAME.fullmatch(place) and not place.endswith(MODEL_FILES):
        return f"{{hub: {place}, revision: the 40 digits of a commit}}, or {of_path} if it is a folder here"
    return of_path


def _unknown_key_line(path: str, key: str, node: dict[str, Any]) -> str:
    key_path = f"{path}.{key}" if path else str(key)
    if new_name := next((name for name, child in node["properties"].items() if child.get("formerly") == key), None):
        return f"{key_path} is now called {new_name}"
    siblings = difflib.get_close_matches(str(key), list(node["properties"]), n=1, cutoff=0.5)
    everywhere = [leaf for leaf, _ in schema_leaves()]
    elsewhere = [leaf for leaf in everywhere if leaf.split(".")[-1] == key]
    elsewhere = elsewhere or difflib.get_close_matches(key_path, everywhere, n=1, cutoff=0.4)
    prefix = f"{path}." if path else ""
    near = [*(f"{prefix}{sibling}" for sibling in siblings), *elsewhere]
    hint = f" (did you mean {near[0]}?)" if near else ""
    return (
        f"{key_path} is not a known key{hint}. Known here: {_key_list_text(path, str(key), list(node['properties']))}"
    )


def _key_list_text(path: str, key: str, names: list[str]) -> str:
    """The keys of a section; if there are many, those whose names are most like `key`, and the command that lists all."""
    if len(names) <= FEW:
        return ", ".join(names)
    nearest_first = sorted(names, key=lambda name: -difflib.SequenceMatcher(None, key, name).ratio())
    section = re.sub(r"\.\d+\b", "[]", path)  # of an entry of a list: its key
    return f"{and_more(nearest_first, FEW)} ({f'crawl2llm keys {section}'.rstrip()})"


def _allowed_text(node: dict[str, Any]) -> str:
    """What a leaf accepts, in words, from its schema: `; allowed: number from 0 to 1 (default 0.65)`."""
    default = "null" if node.get("default") is None else repr(node["default"])
    return f"; allowed: {allowed_values(node)}" + (f" (default {default})" if "default" in node else "")


def allowed_values(node: dict[str, Any]) -> str:
    """The values that a schema leaf accepts, in words."""
    if "enum" in node:
        return " or ".join(map(repr, node["enum"]))
    if "form" in node:
        return f"{node['form']}, or null" if "null" in type_names(node) else str(node["form"])
    words, *other_types = type_names(node)
    if "exclusiveMinimum" in node:
        words += f" above {node['exclusiveMinimum']}"
    if "minimum" in node:
        words += f" from {node['minimum']}"
    if "maximum" in node:
        words += f" to {node['maximum']}"
    if "exclusiveMaximum" in node:
        words += f" below {node['exclusiveMaximum']}"
    return " or ".join([words, *other_types])


def type_names(node: dict[str, Any]) -> list[str]:
    """The types of a schema leaf in words; a leaf that takes text only as `auto` says `auto`."""
    kind = node.get("type", "any")
    types = [str(name) for name in kind] if isinstance(kind, list) else [str(kind)]
    return ["auto" if kind == "string" and node.get("pattern") == AUTO else kind for kind in types]


def auto_keys(config: dict[str, Any], step: str) -> list[str]:
    """The keys of a step that are `auto` in this config, as dotted paths."""
    paths = [path for path, node in schema_leaves(schema_section(step), step) if node.get("pattern") == AUTO]
    return [path for path in paths if lookup(config, path) == "auto"]


def tracked_section(config: dict[str, Any], path: str) -> dict[str, Any]:
    """The section at dotted `path` without its placement keys: what decides the bytes of that step. See `prune_settings`."""
    return prune_settings(path, lookup(config, path))


def schema_section(path: str) -> dict[str, Any]:
    """The schema's node of the section at dotted `path`. Callers must not change it."""
    first, *rest = path.split(".")
    node = settings_registry.stage_node(first)
    for part in rest:
        node = node["properties"][part]
    return node


def prune_settings(path: str, settings: dict[str, Any]) -> dict[str, Any]:
    """`settings` of the section at dotted `path` without placement keys, and without those tracked `unless default` that have it.

    A section that is itself tracked so is left out where it holds nothing else.
    """

    def prune_value(value: Any, node: dict[str, Any]) -> Any:
        if is_section(node):
            kept_keys = {
                key: (prune_value(value[key], child), child)
                for key, child in node["properties"].items()
                if not child.get("placement") and key in value
            }
            return {key: each for key, (each, child) in kept_keys.items() if not _is_left_out(each, child)}
        return [prune_value(each, node["items"]) for each in value] if is_section(node.get("items", {})) else value

    return dict(prune_value(settings, schema_section(path)))


def given_settings(path: str, settings: Settings) -> dict[str, Any]:
    """The settings of the section at dotted `path` as the fingerprint has them: those that were given, without placement keys."""
    return prune_settings(path, settings.model_dump(by_alias=True, exclude_unset=True))


def _is_left_out(value: Any, node: dict[str, Any]) -> bool:
    """Whether a value, or what is left of a section, counts as not there."""
    return bool(node.get("tracked") == "unless default" and value == ({} if is_section(node) else node["default"]))


def named_files(config: dict[str, Any], step: str) -> Iterator[tuple[str, str, str]]:
    """(key, path, kind) of every file that the settings of `step` name, without its digest; what is bundled is left out.

    kind: `yaml` names more files; of a folder of `manifests` only these are read, which have the checksums of the others; `function` a
    Python file of which a function is called; `any` of any other file.
    """
    for path, node in schema_leaves(schema_section(step), step):
        if node.get("file") and has_path(config, path):
            value = lookup(config, path)
            for name in value if isinstance(value, list) else [value]:
                kind = "any" if node["file"] is True else node["file"]
                # A path, or the file of a function, or the manifest of a model, which has all checksums.
                if isinstance(name, dict):
                    kind = "any" if "manifest" in name else kind
                    name = name.get("path") or name.get("manifest") or name.get("function", "").rpartition(":")[0]
                if name and not str(name).startswith("bundled:"):
                    yield path, pinned_names.split_digest(name)[0] if node.get("pinned") else name, kind
