"""What is wrong with a sweep. Errors name the sweep's keys, since the user wrote those, not the variants.

Nothing here imports anything heavy: a plan is made with it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from crawl2llm.chain import config_schema, model_registry, sweep
from crawl2llm.core.nested_dicts import flat, has, lookup, merged

MODELS = "models"

Given = tuple[
    dict[str, str], dict[str, Any]
]  # where in the sweep each dotted key stands; settings that are laid over the config together


def given(section: Mapping[str, Any]) -> Iterator[Given]:
    """What the lists of a sweep give: values one by one, of a range those that are drawn; the entries of `sizes` as a whole."""
    for path, values in section["grid"].items():
        yield from (({path: f"sweep.grid.{path}"}, {path: value}) for value in values)
    keys = section["random"].get("keys", {})
    for path, of in keys.items():
        values = of if isinstance(of, list) else [own[path] for own in sweep.drawn(section["random"])]
        yield from (({path: f"sweep.random.keys.{path}"}, {path: value}) for value in values)
    for number, settings in enumerate(section["sizes"]):
        yield {path: f"sweep.sizes.{number}.{path}" for path in settings}, settings


def lines(complete: Mapping[str, Any]) -> list[str]:
    """A line for each key of a sweep that there is not, and for each value that its key does not take. complete: the run's config.

    Raises SweepError for a range that is none. Keys of a model in `grid` and `random` may need each other: the variant is looked at.
    """
    if broken := _broken(complete):
        return broken
    found: dict[str, None] = {}
    for where, settings in given(complete["sweep"]):
        if len(settings) > 1 or not any(path.startswith(f"{MODELS}.") for path in settings):
            found |= dict.fromkeys(_wrong(complete, where, settings))
    return [*found]


def _wrong(complete: Mapping[str, Any], where: Mapping[str, str], settings: Mapping[str, Any]) -> Iterator[str]:
    laid = sweep.overlay(settings)
    own = {
        key: merged({key: complete[key]}, {key: part})[key] if key in complete else part for key, part in laid.items()
    }
    models = own.get(MODELS, complete[MODELS])
    for error in config_schema.telling(
        config_schema.validator(model_registry.in_schema(config_schema.schema(), models)).iter_errors(own)
    ):
        for line in config_schema.explained(error):
            said = line.partition(" ")[0]
            path = next((path for path in settings if f"{said}.".startswith(f"{path}.")), None)
            longer = next((path for path in settings if path.startswith(f"{said}.")), None)
            if error.validator == "additionalProperties" and (unknown := path or longer):
                near = difflib.get_close_matches(unknown, [name for name, _ in config_schema.leaves()], n=1)
                yield f"{where[unknown]} is not a known key" + (f" (did you mean {near[0]}?)" if near else f": {line}")
            elif path:
                yield f"{where[path]}{line[len(path) :]}"
            else:
                yield f"{', '.join(where.values())}: {line}"


def _broken(complete: Mapping[str, Any]) -> list[str]:
    """A line for each range of numbers with a point, of a key of whole numbers."""
    nodes = dict(config_schema.leaves())
    return [
        f"sweep.random.keys.{path} is {of}, and {path} takes whole numbers (allowed: {config_schema.allowed(nodes[path])}): "
        "add integer: true"
        for path, of in complete["sweep"]["random"].get("keys", {}).items()
        if isinstance(of, dict) and not of.get("integer") and path in nodes
        and "integer" in (kinds := config_schema.kinds(nodes[path])) and "number" not in kinds
    ]  # fmt: skip


def whose(complete: Mapping[str, Any], name: str) -> str:
    """How an error names a variant: `variants.small`, or the part of the sweep that makes it, with its values."""
    overlay = complete["variants"].get(name, {})
    try:
        made = sweep.variants(complete)
    except sweep.SweepError:
        made = {}
    if made.get(name) != overlay:
        return f"variants.{name}"
    said = _said(complete["sweep"], overlay)
    return f"{said} (variant {name})" if said else f"sweep makes the variant {name}"


def _said(section: Mapping[str, Any], overlay: dict[str, Any]) -> str:
    """`sweep.grid.quality.select.keep_fraction 0.5`: what of a sweep a variant comes from; "" where its name alone says it."""

    def bare(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in flat(dict(settings)).items() if key not in section["seed_keys"]}

    held = bare(overlay)
    for number, settings in enumerate(section["sizes"]):
        if held == bare(sweep.overlay(settings)):
            return f"sweep.sizes.{number}"
    for number, shares in enumerate(section["mixes"]):
        if held == bare(sweep.overlay({sweep.PHASES: [{"shares": shares}]})):
            return f"sweep.mixes.{number}"
    for where, keys in (("grid", section["grid"]), ("random.keys", section["random"].get("keys", {}))):
        values = {key: lookup(overlay, key) for key in keys if has(overlay, key)}
        if keys and len(values) == len(keys) and held == bare(sweep.overlay(values)):
            return ", ".join(f"sweep.{where}.{key} {value!r}" for key, value in values.items())
    return ""
