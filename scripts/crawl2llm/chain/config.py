"""The configuration: one schema holds every key, its type, range, default and meaning.

`schemas/config.schema.yaml` is JSON Schema 2020-12 with a few keywords more, which its first lines explain. Nothing here imports
anything heavy: the Snakefile is parsed with it.
"""

from __future__ import annotations

import copy
import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from crawl2llm.chain import halving, model_registry, shared_reference, sweep, sweep_errors
from crawl2llm.core import pinned_names, secret_masking
from crawl2llm.core.nested_dicts import has, lookup, merged
from crawl2llm.core.yaml_hints import hint, meant

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = ROOT / "schemas" / "config.schema.yaml"
AUTO = "^auto$"  # the pattern of a leaf that also takes `auto`: the step decides by the corpus
COMMON = "evaluate.common"
FEW = 12  # keys of a section that an error lists
# libyaml where PyYAML was built with it: the schema is parsed at the start of every job.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _integer(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(checker: Any, value: Any) -> bool:
    return _integer(checker, value) or (isinstance(value, float) and math.isfinite(value))


def validator(tree: dict[str, Any]) -> Draft202012Validator:
    """What checks a config against a schema. JSON Schema takes 4.0 for an integer, and NaN for within any range."""
    from jsonschema import Draft202012Validator  # a program that is given a fingerprint checks none
    from jsonschema.validators import extend

    types = Draft202012Validator.TYPE_CHECKER.redefine_many({"integer": _integer, "number": _number})
    made: Draft202012Validator = extend(Draft202012Validator, type_checker=types)(tree)
    return made


class ConfigError(ValueError):
    """A configuration that the schema refuses; the message names key, value and what is allowed."""


@cache
def schema() -> dict[str, Any]:
    """The parsed schema. Callers must not change it."""
    with SCHEMA.open(encoding="utf-8") as handle:
        return yaml.load(handle, Loader=LOADER)  # noqa: S506 - a safe loader, by name


def is_section(node: dict[str, Any]) -> bool:
    """Whether a schema node is a section (an object with named keys) and not a leaf."""
    return "properties" in node


def leaves(node: dict[str, Any] | None = None, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every leaf of the schema as (dotted path, schema node), in the order of the file."""
    for key, child in (node or schema())["properties"].items():
        here = f"{path}.{key}" if path else key
        if is_section(child):
            yield from leaves(child, here)
        else:
            yield here, child


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
        out["models"] = {name: entry for name, entry in out["models"].items() if entry is not None}
    return out


def in_place(config: dict[str, Any]) -> dict[str, Any]:
    """A complete config with the folder `data` in place of `{data}` in every key that names files; those of sources find their files
    by another way (chain/sources.py), so that a folder that moves reruns nothing.
    """
    out = copy.deepcopy(config)
    for path, node in leaves():
        stage, _, key = path.rpartition(".")
        if node.get("file"):
            sections = [lookup(out, stage)]
            sections += [entry for entry in out["models"].values() if entry.get("step") == stage]
            for section in sections:
                if key in section:
                    section[key] = _each_path(section[key], partial(to_folder, data=out["data"]))
    return out


DATA = "{data}"  # in a path: the folder of the key `data`


def to_folder(path: str, data: str) -> str:
    """A path with the folder `data` in place of `{data}`."""
    return path.replace(DATA, data.rstrip("/") or "/")


def from_folder(path: str, data: str) -> str:
    """The inverse: a path in the folder `data` begins with `{data}`, any other stays."""
    root = data.rstrip("/")
    return f"{DATA}{path[len(root) :]}" if root and (path == root or path.startswith(f"{root}/")) else path


def _each_path(value: Any, change: Callable[[str], str]) -> Any:
    """A path, or a list of paths or of entries with one (`path`, the `function` of a file, or a `manifest`), each changed."""
    if isinstance(value, list):
        return [_each_path(each, change) for each in value]
    if isinstance(value, dict):
        named = [key for key in ("path", "function", "manifest") if key in value]
        return {**value, **{key: _each_path(value[key], change) for key in named}}
    return change(value) if isinstance(value, str) else value


# Keys with paths among what steps are told of others (told.py):
TOLD_PATHS = {
    "evaluate.stage": ["data"],
    **{step: ["train.start_from"] for step in ("pretrain.mix", "pretrain.plan", "pretrain.rung")},
}


def with_paths(step: str, settings: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """The settings of a step, as its program gets them, with each path changed that a key names; the given ones stay as they are."""
    own = [path.removeprefix(f"{step}.") for path, node in leaves() if node.get("file") and path.startswith(f"{step}.")]

    def changed(section: dict[str, Any], first: str, *rest: str) -> dict[str, Any]:
        if first not in section:
            return section
        return {**section, first: changed(section[first], *rest) if rest else _each_path(section[first], change)}

    for key in own + TOLD_PATHS.get(step, []):
        settings = changed(settings, *key.split("."))
    return settings


def _markup(config: dict[str, Any]) -> list[str]:
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
    config = shared_reference.own(config) if isinstance(config, dict) else config
    if lines := _odd_keys(config):
        raise ConfigError(f"{source}: " + f"\n{source}: ".join(lines))
    models = config.get("models") if isinstance(config, dict) else None
    checking = validator(model_registry.in_schema(schema(), models))
    errors = sorted(checking.iter_errors(config), key=lambda e: list(map(str, e.absolute_path)))
    lines = list(dict.fromkeys(line for error in telling(errors) for line in explained(error)))
    complete = {} if lines else in_place(with_defaults(config))
    lines += model_registry.problems(complete.get("models", {}))
    if not lines:
        lines += _markup(complete)
        by_hand = set(complete["variants"])
        lines += _swept(complete)
        judged = complete["sweep"]["halving"]
        if complete["variants"] or judged["contenders"] is None:  # else of a variant, which is told
            judged["contenders"] = halving.filled(complete)
        said: set[str] = set()  # of a sweep's variants: fifty may have the same fault
        for name in complete.get("variants", {}):
            try:
                own = of_variant(complete, name)
                lines += _measured_otherwise(complete, own, name, name in by_hand)
            except ConfigError as error:
                whose = sweep_errors.whose(complete, name)
                wrong = str(error).replace(f"variants.{name}: ", "").split("\n")
                lines += [f"{whose}: {line}" for line in wrong if name in by_hand or line not in said]
                said.update(wrong)
    if lines:
        raise ConfigError(f"{source}: " + f"\n{source}: ".join(lines))
    return complete


def _measured_otherwise(complete: dict[str, Any], own: dict[str, Any], name: str, by_hand: bool) -> list[str]:
    """A line for each key of evaluate.common in which a variant differs from main: their numbers would not compare."""
    main, other = (lookup(config, COMMON) for config in (complete, own))
    free = {"threads", *(key for key, node in section(COMMON)["properties"].items() if node.get("placement"))}
    where = f"variants.{name}." if by_hand else f"sweep makes the variant {name}, in which "
    return [
        f"{where}{COMMON}.{key} is {other[key]!r}, and main has {main[key]!r}: all variants are measured alike; set "
        f"{COMMON}.{key} for all"
        for key in main
        if key not in free and main[key] != other[key]
    ]


def _swept(complete: dict[str, Any]) -> list[str]:
    """Put the variants that `sweep` stands for among the others; the lines of what is wrong with it."""
    try:
        sweep.check_keys(complete["sweep"])
        if lines := sweep_errors.lines(complete):
            return lines
        made = sweep.variants(complete)
    except sweep.SweepError as error:
        return [str(error)]
    if lines := _idle(complete["sweep"]):
        return lines
    own = complete["variants"]
    wrong = [
        f"sweep makes a variant {name}, and variants has another of that name"
        for name in made
        if own.get(name, made[name]) != made[name]
    ]
    complete["variants"] = {**own, **made}
    return wrong


def _idle(section: dict[str, Any]) -> list[str]:
    """A line for each list of a sweep that would make variants with the same results, by keys that decide nothing of what is written."""
    why = "says where or how fast a step runs, so its variants would have the same results, made once"
    where = "write it in sweep.sizes beside what it is for, or in variants"
    lists = {"grid": section["grid"], "random.keys": section["random"]["keys"]}
    lines = [f"sweep.{name}.{path} {why}: {where}" for name, keys in lists.items() for path in placement(keys)]
    alone = [one for one in section["sizes"] if len(placement(one)) == len(one)]
    return lines + [f"sweep.sizes has {', '.join(one)} alone, which {why}: {where}" for one in alone]


def unused(config: dict[str, Any], complete: dict[str, Any]) -> list[str]:
    """A line for each filter whose section a config has as it was given, and that its `filters` leaves out. complete: with its defaults."""
    known = schema()["properties"]["filters"]["items"]["enum"]
    left = [name for name in known if name in config and name not in complete["filters"]]
    return [f"{name} is set, and not used: filters is {', '.join(complete['filters']) or 'empty'}" for name in left]


def of_variant(config: dict[str, Any], name: str) -> dict[str, Any]:
    """The whole config of a variant, with what it is compared with (chain/shared_reference.py); `main` is the config itself.

    Raises ConfigError.
    """
    if name not in config["variants"]:
        return config
    judged = {key: config["sweep"][key] for key in ("halving", "seed_keys")}
    own = {**merged(config, config["variants"][name]), "variants": {}, "sweep": judged}
    return {**validate(own, source=f"variants.{name}"), shared_reference.KEY: shared_reference.Reference(config)}


def placement(settings: Mapping[str, Any]) -> list[str]:
    """Which of these dotted keys say where or how fast a step runs, and nothing of what it writes."""
    found = {path for path, node in leaves() if node.get("placement")}
    return [path for path in settings if path in found]


def telling(errors: Iterable[ValidationError]) -> list[ValidationError]:
    """The errors without what else is wrong with a value of the wrong type, which says all."""
    every = list(errors)
    typed = {error.json_path for error in every if error.validator == "type"}
    return [error for error in every if error.validator == "type" or error.json_path not in typed]


def explained(error: ValidationError) -> list[str]:
    """A line, or several, on what the schema refuses: key, value and what is allowed."""
    path = ".".join(str(part) for part in error.absolute_path)
    where = path or "the top level"
    rule, value, shown = error.validator, error.validator_value, repr(error.instance)
    shown = secret_masking.mask(shown)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    if isinstance(error.schema, dict) and error.schema.get("secret"):
        shown = "a value that is not shown, since it may be a secret"
    if rule == "additionalProperties" and isinstance(error.schema, dict):
        return [_unknown(path, key, error.schema) for key in error.instance if key not in error.schema["properties"]]
    if rule == "pattern" and "propertyNames" in error.absolute_schema_path:
        return [f"{where} has the key {shown}; allowed are {error.schema['form']}"]
    if rule == "pattern" and value == AUTO:
        return [f"{where} is {shown}{_allowed(error.schema)}{hint(error.instance, kinds(error.schema))}"]
    if rule == "pattern":
        return [f"{where} is {shown}{_allowed(error.schema)}"]
    if rule == "type":
        found = kinds(error.schema)
        if found == ["object"] and (keys := list(error.schema.get("properties", {}))):
            one = error.schema["properties"][keys[0]]
            fits = validator(one).is_valid(error.instance) if "properties" not in one else False
            example = f", such as {{{keys[0]}: {error.instance}}}" if fits else ""
            return [f"{where} is {shown}; it holds keys of its own: {', '.join(keys)}{example}"]
        said = f"{where} is {shown}, which is not of type {' or '.join(found)}{_allowed(error.schema)}"
        if found == ["array"] and isinstance(error.instance, str | int | float):
            said += f"; write a list: [{error.instance}]"
        return [said + hint(error.instance, found)]
    if rule == "enum":
        close = difflib.get_close_matches(str(error.instance), [str(v) for v in value], n=1)
        near = f" (did you mean {close[0]!r}?)" if close else ""
        kinds_of = {"string": str, "integer": int}
        wanted = [name for name, kind in kinds_of.items() if any(isinstance(one, kind) for one in value)]
        known = ", ".join("null" if one is None else repr(one) for one in value)
        return [f"{where} is {shown}; allowed are {known}{near}{hint(error.instance, wanted)}"]
    if rule == "required":
        missing = [key for key in value if key not in error.instance]
        return [f"{where} lacks the key {', '.join(map(repr, missing))}"]
    if rule in {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}:
        return [f"{where} is {shown}, out of range{_allowed(error.schema)}"]
    return [f"{where} is {shown}: {error.message}{_allowed(error.schema)}"]


def _odd_keys(config: Any, path: str = "") -> list[str]:
    """A line for each key that is not text, at any depth: YAML reads the language `no` as False, as a key too."""
    if isinstance(config, list):
        return [line for number, item in enumerate(config) for line in _odd_keys(item, f"{path}.{number}".lstrip("."))]
    if not isinstance(config, dict):
        return []
    here = path or "the top level"
    found = [f"{here} has the key {key!r}, which is not text{meant(key)}" for key in config if not isinstance(key, str)]
    return found + [line for key, child in config.items() for line in _odd_keys(child, f"{path}.{key}".lstrip("."))]


def _unknown(path: str, key: str, node: dict[str, Any]) -> str:
    here = f"{path}.{key}" if path else str(key)
    if now := next((name for name, child in node["properties"].items() if child.get("formerly") == key), None):
        return f"{here} is now called {now}"
    siblings = difflib.get_close_matches(str(key), list(node["properties"]), n=1, cutoff=0.5)
    everywhere = [leaf for leaf, _ in leaves()]
    elsewhere = [leaf for leaf in everywhere if leaf.split(".")[-1] == key]
    elsewhere = elsewhere or difflib.get_close_matches(here, everywhere, n=1, cutoff=0.4)
    prefix = f"{path}." if path else ""
    nearest = f"{prefix}{siblings[0]}" if siblings else (elsewhere[0] if elsewhere else None)
    hint = f" (did you mean {nearest}?)" if nearest else ""
    return f"{here} is not a known key{hint}. Known here: {_few(str(key), list(node['properties']))}"


def _few(key: str, names: list[str]) -> str:
    """The keys of a section; of many those whose names are most like `key`, with where the others are listed."""
    if len(names) <= FEW:
        return ", ".join(names)
    like = sorted(names, key=lambda name: -difflib.SequenceMatcher(None, key, name).ratio())[:FEW]
    return f"{', '.join(like)} and {len(names) - FEW} more (docs/config.md)"


def _allowed(node: dict[str, Any]) -> str:
    """What a leaf accepts, in words, from its schema: `; allowed: number from 0 to 1 (default 0.65)`."""
    default = "null" if node.get("default") is None else repr(node["default"])
    return f"; allowed: {allowed(node)}" + (f" (default {default})" if "default" in node else "")


def allowed(node: dict[str, Any]) -> str:
    """The values that a schema leaf accepts, in words."""
    if "enum" in node:
        return " or ".join(map(repr, node["enum"]))
    if "form" in node:
        return str(node["form"]) + ", or null" * ("null" in kinds(node))
    words, *others = kinds(node)
    if "exclusiveMinimum" in node:
        words += f" above {node['exclusiveMinimum']}"
    if "minimum" in node:
        words += f" from {node['minimum']}"
    if "maximum" in node:
        words += f" to {node['maximum']}"
    if "exclusiveMaximum" in node:
        words += f" below {node['exclusiveMaximum']}"
    return " or ".join([words, *others])


def kinds(node: dict[str, Any]) -> list[str]:
    """The types of a schema leaf in words; a leaf that takes text only as `auto` says `auto`."""
    kind = node.get("type", "any")
    found = [str(one) for one in kind] if isinstance(kind, list) else [str(kind)]
    return ["auto" if one == "string" and node.get("pattern") == AUTO else one for one in found]


def is_auto(config: dict[str, Any], step: str) -> list[str]:
    """The keys of a step that are `auto` in this config, as dotted paths."""
    found = [path for path, node in leaves() if node.get("pattern") == AUTO and path.startswith(f"{step}.")]
    return [path for path in found if lookup(config, path) == "auto"]


def tracked(config: dict[str, Any], path: str) -> dict[str, Any]:
    """The section at dotted `path` without its placement keys: what decides the bytes of that step. See `pruned`."""
    return pruned(path, lookup(config, path))


def section(path: str) -> dict[str, Any]:
    """The schema's node of the section at dotted `path`. Callers must not change it."""
    node = schema()
    for part in path.split("."):
        node = node["properties"][part]
    return node


def completed(path: str, settings: dict[str, Any]) -> dict[str, Any]:
    """`settings` of the section at dotted `path`, with the schema's default for each tracked key that they lack; the inverse of `pruned`.

    A fingerprint lacks keys that are tracked `unless default` where they have it. Placement keys are not filled in: they are options of
    the program.
    """

    def fill(value: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
        out = dict(value)
        for key, child in node["properties"].items():
            if child.get("placement"):
                continue
            if is_section(child):
                out[key] = fill(value.get(key, {}), child)
            elif "default" in child:
                out.setdefault(key, copy.deepcopy(child["default"]))
        return out

    return fill(settings, section(path))


def pruned(path: str, settings: dict[str, Any]) -> dict[str, Any]:
    """`settings` of the section at dotted `path` without placement keys, and without those tracked `unless default` that have it.

    A section that is itself tracked so is left out where it holds nothing else.
    """

    def prune(value: Any, node: dict[str, Any]) -> Any:
        if is_section(node):
            kept = {
                key: (prune(value[key], child), child)
                for key, child in node["properties"].items()
                if not child.get("placement") and key in value
            }
            return {key: each for key, (each, child) in kept.items() if not _silent(each, child)}
        return [prune(each, node["items"]) for each in value] if is_section(node.get("items", {})) else value

    return dict(prune(settings, section(path)))


def _silent(value: Any, node: dict[str, Any]) -> bool:
    """Whether a value, or what is left of a section, counts as not there."""
    return bool(node.get("tracked") == "unless default" and value == ({} if is_section(node) else node["default"]))


def named_files(config: dict[str, Any], step: str) -> Iterator[tuple[str, str, str]]:
    """(key, path, kind) of every file that the settings of `step` name, without its digest; what is bundled is left out.

    kind: `yaml` names more files; of a folder of `manifests` only these are read, which have the checksums of the others; `function` a
    Python file of which a function is called; else any file.
    """
    for path, node in leaves():
        if path.startswith(f"{step}.") and node.get("file") and has(config, path):
            value = lookup(config, path)
            for name in value if isinstance(value, list) else [value]:
                kind = str(node["file"])
                # A path, or the file of a function, or the manifest of a model, which has all checksums.
                if isinstance(name, dict):
                    kind = "true" if "manifest" in name else kind
                    name = name.get("path") or name.get("manifest") or name.get("function", "").rpartition(":")[0]
                if name and not str(name).startswith("bundled:"):
                    yield path, pinned_names.split(name)[0] if node.get("pinned") else name, kind
