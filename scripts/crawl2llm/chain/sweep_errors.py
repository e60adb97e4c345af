"""What is wrong with a sweep. Errors name the sweep's keys, since the user wrote those, not the variants.

Nothing here imports anything heavy: a plan is made with it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from crawl2llm.chain import config_schema, sweep
from crawl2llm.core.nested_dicts import flatten, has_path, lookup, merge_dicts

MODELS = "models"

ListedValue = tuple[
    dict[str, str], dict[str, Any]
]  # where in the sweep each dotted key stands; settings that are laid over the config together


def listed_values(section: Mapping[str, Any]) -> Iterator[ListedValue]:
    """What the lists of a sweep give: values one by one, of a range those that are drawn; the entries of `sizes` as a whole."""
    for path, values in section["grid"].items():
        yield from (({path: f"sweep.grid.{path}"}, {path: value}) for value in values)
    random = section["random"]
    for path, domain in random.get("keys", {}).items():
        values = domain if isinstance(domain, list) else [draw[path] for draw in sweep.random_settings(random)]
        yield from (({path: f"sweep.random.keys.{path}"}, {path: value}) for value in values)
    for number, settings in enumerate(section["sizes"]):
        yield {path: f"sweep.sizes.{number}.{path}" for path in settings}, settings


def sweep_problems(complete: Mapping[str, Any]) -> list[str]:
    """A line for each key of a sweep that there is not, and for each value that its key does not take. complete: the run's config.

    Raises SweepError for a range that is none. Keys of a model in `grid` and `random` may need each other: the variant is looked at.
    """
    if broken := _range_problems(complete):
        return broken
    problems: dict[str, None] = {}
    for where, settings in listed_values(complete["sweep"]):
        if len(settings) > 1 or not any(path.startswith(f"{MODELS}.") for path in settings):
            problems |= dict.fromkeys(_setting_problems(complete, where, settings))
    return [*problems]


def _setting_problems(
    complete: Mapping[str, Any], where: Mapping[str, str], settings: Mapping[str, Any]
) -> Iterator[str]:
    laid = sweep.nested_overlay(settings)
    sections = {
        key: merge_dicts({key: complete[key]}, {key: part})[key] if key in complete else part
        for key, part in laid.items()
    }
    for error in config_schema.schema_errors(sections):
        for line in config_schema.error_lines(error):
            error_path = line.partition(" ")[0]
            path = next((path for path in settings if f"{error_path}.".startswith(f"{path}.")), None)
            longer = next((path for path in settings if path.startswith(f"{error_path}.")), None)
            if error.validator == "additionalProperties" and (unknown := path or longer):
                near = difflib.get_close_matches(unknown, [name for name, _ in config_schema.schema_leaves()], n=1)
                yield f"{where[unknown]} is not a known key" + (f" (did you mean {near[0]}?)" if near else f": {line}")
            elif path:
                yield f"{where[path]}{line[len(path) :]}"
            else:
                yield f"{', '.join(where.values())}: {line}"


def _range_problems(complete: Mapping[str, Any]) -> list[str]:
    """A line for each range of numbers with a point, of a key of whole numbers."""
    nodes = dict(config_schema.schema_leaves())
    return [
        f"sweep.random.keys.{path} is {domain}, and {path} takes whole numbers (allowed: {config_schema.allowed_values(nodes[path])}): "
        "add integer: true"
        for path, domain in complete["sweep"]["random"].get("keys", {}).items()
        if isinstance(domain, dict) and not domain.get("integer") and path in nodes
        and "integer" in (kinds := config_schema.type_names(nodes[path])) and "number" not in kinds
    ]  # fmt: skip


def variant_label(complete: Mapping[str, Any], name: str) -> str:
    """How an error names a variant: `variants.small`, or the part of the sweep that makes it, with its values."""
    overlay = complete["variants"].get(name, {})
    try:
        swept = sweep.sweep_variants(complete)
    except sweep.SweepError:
        swept = {}
    if swept.get(name) != overlay:
        return f"variants.{name}"
    origin = _sweep_origin(complete["sweep"], overlay)
    return f"{origin} (variant {name})" if origin else f"sweep makes the variant {name}"


def _sweep_origin(section: Mapping[str, Any], overlay: dict[str, Any]) -> str:
    """`sweep.grid.quality.select.keep_fraction 0.5`: what of a sweep a variant comes from; "" where its name alone says it."""

    def without_seeds(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in flatten(dict(settings)).items() if key not in section["seed_keys"]}

    bare_overlay = without_seeds(overlay)
    for number, settings in enumerate(section["sizes"]):
        if bare_overlay == without_seeds(sweep.nested_overlay(settings)):
            return f"sweep.sizes.{number}"
    for number, shares in enumerate(section["mixes"]):
        if bare_overlay == without_seeds(sweep.nested_overlay({sweep.PHASES: [{"shares": shares}]})):
            return f"sweep.mixes.{number}"
    for where, keys in (("grid", section["grid"]), ("random.keys", section["random"].get("keys", {}))):
        values = {key: lookup(overlay, key) for key in keys if has_path(overlay, key)}
        if keys and len(values) == len(keys) and bare_overlay == without_seeds(sweep.nested_overlay(values)):
            return ", ".join(f"sweep.{where}.{key} {value!r}" for key, value in values.items())
    return ""
