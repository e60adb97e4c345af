"""The configuration of a run: read, completed with the defaults of its schema (chain/config_schema.py), and laid out for each variant."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from crawl2llm.chain import filter_order, halving, model_registry, plugins, shared_reference, sweep, sweep_errors
from crawl2llm.chain.config_schema import (
    error_lines,
    is_section,
    placement_keys_in,
    schema,
    schema_errors,
    schema_leaves,
    schema_section,
)
from crawl2llm.chain.data_folder import to_folder
from crawl2llm.chain.steps import COMMON, STEPS
from crawl2llm.core.errors import ConfigError
from crawl2llm.core.nested_dicts import lookup, merge_dicts
from crawl2llm.core.yaml_hints import not_text_hint


def with_defaults(config: dict[str, Any], node: dict[str, Any] | None = None) -> dict[str, Any]:
    """A copy of `config` in the schema's key order, every absent key filled from the schema's default."""
    out: dict[str, Any] = {}
    for key, child in (node or schema())["properties"].items():
        if is_section(child):
            out[key] = with_defaults(config.get(key) or {}, child)
        elif key in config:
            out[key] = config[key]
        elif "default" in child:
            out[key] = copy.deepcopy(child["default"])
    if "models" in out and node is None:  # null takes a model away
        out["models"] = model_registry.with_root_keys(out["models"])
    return out


def fill_data_folder(config: dict[str, Any]) -> dict[str, Any]:
    """A complete config with the folder `data` in place of `{data}` in every key that names files; those of sources find their files
    by another way (chain/sources.py), so that a folder that moves reruns nothing.
    """
    out = copy.deepcopy(config)
    for path, node in schema_leaves():
        stage, _, key = path.rpartition(".")
        if node.get("file"):
            sections = [lookup(out, stage)]
            sections += [entry for entry in out["models"].values() if entry.get("step") == stage]
            for section in sections:
                if key in section:
                    section[key] = _change_path_values(section[key], partial(to_folder, data=out["data"]))
    ready = out["tokenize"]["train"]["from"]
    if ready["path"]:
        ready["path"] = to_folder(ready["path"], out["data"])
    for entry in out["models"].values():  # its content is tracked, and no path
        if entry["step"] == model_registry.PUBLISHED_STEP and entry.get("path"):
            entry["path"] = to_folder(entry["path"], out["data"])
    return out


def _change_path_values(value: Any, change: Callable[[str], str]) -> Any:
    """A path, or a list of paths or of entries with one (`path`, the `function` of a file, or a `manifest`), each changed."""
    if isinstance(value, list):
        return [_change_path_values(each, change) for each in value]
    if isinstance(value, dict):
        path_keys = [key for key in ("path", "function", "manifest") if key in value]
        return {**value, **{key: _change_path_values(value[key], change) for key in path_keys}}
    return change(value) if isinstance(value, str) else value


def with_changed_paths(step: str, settings: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """The settings of a step, as its program gets them, with each path changed that a key names; the given ones stay as they are."""
    path_keys = [path for path, node in schema_leaves(schema_section(step)) if node.get("file")]

    def change_key(section: dict[str, Any], first: str, *rest: str) -> dict[str, Any]:
        if first not in section:
            return section
        return {
            **section,
            first: change_key(section[first], *rest) if rest else _change_path_values(section[first], change),
        }

    for key in (*path_keys, *STEPS[step].extra_paths):
        settings = change_key(settings, *key.split("."))
    return settings


def _markup_problems(config: dict[str, Any]) -> list[str]:
    """A line where the extractor does not write Markdown and the config wants it. config: complete."""
    extract = config["ingest"]["extract"]
    if extract["markup"] == "markdown" and extract["extractor"] == "resiliparse":
        return [
            "ingest.extract.markup is markdown, which resiliparse does not write: set ingest.extract.extractor to fast or trafilatura"
        ]
    return []


def validate(config: dict[str, Any], source: str = "config.yaml") -> dict[str, Any]:
    """Check `config` against the schema and return it complete.

    Raises ConfigError with one line for each problem: the key's path, the value, what is allowed and, for an unknown
    key, the nearest known one. What a variant is compared with is left out of what is returned.
    """
    config = shared_reference.without_reference(config) if isinstance(config, dict) else config
    try:
        plugins.load_plugins_of(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    if lines := _key_problems(config):
        raise ConfigError(f"{source}: " + f"\n{source}: ".join(lines))
    lines = list(dict.fromkeys(line for error in schema_errors(config) for line in error_lines(error)))
    complete = {} if lines else fill_data_folder(with_defaults(config))
    lines += model_registry.model_problems(complete) if complete else []
    if not lines:
        lines += _markup_problems(complete)
        by_hand = set(complete["variants"])
        lines += _add_sweep_variants(complete)
        judged = complete["sweep"]["halving"]
        if complete["variants"] or judged["contenders"] is None:  # else of a variant, which is told
            judged["contenders"] = halving.contender_overlays(complete)
        reported: set[str] = set()  # of a sweep's variants: fifty may have the same fault
        for name in complete.get("variants", {}):
            try:
                variant_config = complete_variant(complete, name)
                lines += _measurement_problems(complete, variant_config, name, name in by_hand)
            except ConfigError as error:
                label = sweep_errors.variant_label(complete, name)
                wrong = str(error).replace(f"variants.{name}: ", "").split("\n")
                lines += [f"{label}: {line}" for line in wrong if name in by_hand or line not in reported]
                reported.update(wrong)
    if lines:
        raise ConfigError(f"{source}: " + f"\n{source}: ".join(lines))
    return complete


def _measurement_problems(
    complete: dict[str, Any], variant_config: dict[str, Any], name: str, by_hand: bool
) -> list[str]:
    """A line for each key of evaluate.common in which a variant differs from main: their numbers would not compare."""
    main, other = (lookup(config, COMMON) for config in (complete, variant_config))
    free = {"threads", *(key for key, node in schema_section(COMMON)["properties"].items() if node.get("placement"))}
    where = f"variants.{name}." if by_hand else f"sweep makes the variant {name}, in which "
    return [
        f"{where}{COMMON}.{key} is {other[key]!r}, and main has {main[key]!r}: all variants are measured alike; set "
        f"{COMMON}.{key} for all"
        for key in main
        if key not in free and main[key] != other[key]
    ]


def _add_sweep_variants(complete: dict[str, Any]) -> list[str]:
    """Put the variants that `sweep` stands for among the others; the lines of what is wrong with it."""
    try:
        sweep.check_keys(complete["sweep"])
        if lines := sweep_errors.sweep_problems(complete):
            return lines
        swept = sweep.sweep_variants(complete)
    except sweep.SweepError as error:
        return [str(error)]
    if lines := _idle_list_problems(complete["sweep"]):
        return lines
    listed = complete["variants"]
    wrong = [
        f"sweep makes a variant {name}, and variants has another of that name"
        for name in swept
        if listed.get(name, swept[name]) != swept[name]
    ]
    complete["variants"] = {**listed, **swept}
    return wrong


def _idle_list_problems(section: dict[str, Any]) -> list[str]:
    """A line for each list of a sweep that would make variants with the same results, by keys that decide nothing of what is written."""
    why = "says where or how fast a step runs, so its variants would have the same results, made once"
    where = "write it in sweep.sizes beside what it is for, or in variants"
    lists = {"grid": section["grid"], "random.keys": section["random"]["keys"]}
    lines = [f"sweep.{name}.{path} {why}: {where}" for name, keys in lists.items() for path in placement_keys_in(keys)]
    alone = [size for size in section["sizes"] if len(placement_keys_in(size)) == len(size)]
    return lines + [f"sweep.sizes has {', '.join(keys)} alone, which {why}: {where}" for keys in alone]


def unused_filter_lines(config: dict[str, Any], complete: dict[str, Any]) -> list[str]:
    """A line for each filter whose section a config has as it was given, and that its `filters` leaves out. complete: with its defaults."""
    names = list(filter_order.FILTERS)
    unused_names = [name for name in names if name in config and name not in complete["filters"]]
    return [
        f"{name} is set, and not used: filters is {', '.join(complete['filters']) or 'empty'}" for name in unused_names
    ]


def complete_variant(config: dict[str, Any], name: str) -> dict[str, Any]:
    """The complete config of one of the variants: main's with the keys of its own. Raises ConfigError."""
    judged = {key: config["sweep"][key] for key in ("halving", "seed_keys")}
    overlaid = {**merge_dicts(config, config["variants"][name]), "variants": {}, "sweep": judged}
    if overlaid["plugins"] != config["plugins"]:
        raise ConfigError(
            f"variants.{name}: plugins is {overlaid['plugins']!r}, and main has {config['plugins']!r}: set plugins for all, and name "
            f"filters of each variant in its filters"
        )
    return validate(overlaid, source=f"variants.{name}")


def _key_problems(config: Any, path: str = "") -> list[str]:
    """A line for each key that is not text, at any depth: YAML reads the language `no` as False, as a key too."""
    if isinstance(config, list):
        return [
            line for number, item in enumerate(config) for line in _key_problems(item, f"{path}.{number}".lstrip("."))
        ]
    if not isinstance(config, dict):
        return []
    place = path or "the top level"
    problems = [
        f"{place} has the key {key!r}, which is not text{not_text_hint(key)}"
        for key in config
        if not isinstance(key, str)
    ]
    return problems + [
        line for key, child in config.items() for line in _key_problems(child, f"{path}.{key}".lstrip("."))
    ]
