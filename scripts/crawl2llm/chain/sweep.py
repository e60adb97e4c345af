"""A sweep: variants that a config describes by lists of values, instead of one by one.

The result is what a person would have written under `variants`: overlays by name. A name tells the keys that differ and their values, and
depends on nothing else, so another value in a list makes another variant and leaves the others as they are. Only where that would be the
same name for two settings (keys of two stages that end alike, texts that differ in capitals) have both a hash of the setting behind it.
Random values are hashes of (seed, key, number): the same on every machine. Nothing here imports anything heavy: a plan is made with it.
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b  # training on a GPU machine reads the config without the project's other libraries
from typing import Any

from crawl2llm.chain.filter_order import order_problem
from crawl2llm.core.nested_dicts import flatten, has_path, lookup, merge_dicts, nest_value

ALIASES = {"sources": "ingest.extract.sources"}  # in leave_one_out
PHASES = "pretrain.mix.phases"  # of `mixes`
SWEEP_SECTIONS = ("sweep", "variants")  # sections that make variants, which no variant can set
LONGEST = 48  # characters of a name that is no hash
DIGITS = 3  # of a random number

Settings = dict[str, Any]  # dotted path → value


class SweepError(ValueError):
    """A sweep that makes no variants, in words; the message begins with the key."""


def sweep_variants(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The overlays that the section `sweep` of a complete config stands for, by name, in order; {} for none.

    Raises SweepError for more than `most` of them, and for settings that cannot be.
    """
    sweep = config["sweep"]
    check_keys(sweep)
    listed = [
        *grid_settings(sweep["grid"]),
        *random_settings(sweep["random"]),
        *({PHASES: [{"shares": shares}]} for shares in sweep["mixes"]),
        *sweep["sizes"],
    ]
    groups = [(variant_name(setting), setting) for setting in listed] + list(
        leave_one_out(config, sweep["leave_one_out"])
    )
    named_settings = repeat_with_seeds(config, groups, sweep["seeds"], sweep["seed_keys"])
    if len(named_settings) > sweep["most"]:
        raise SweepError(
            f"sweep makes {len(named_settings)} variants, and sweep.most is {sweep['most']}: raise it, or give fewer values"
        )
    overlays = [(name, settings, nested_overlay(settings)) for name, settings in named_settings]
    # A name that would be that of two settings is that of neither: which of them is first in the config must not decide.
    first: dict[str, dict[str, Any]] = {}
    shared = {name for name, _, laid in overlays if first.setdefault(name, laid) != laid}
    return {f"{name}-{_settings_hash(settings)}" if name in shared else name: laid for name, settings, laid in overlays}


def nested_overlay(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What dotted keys with values are as nested mappings."""
    laid: dict[str, Any] = {}
    for path, value in settings.items():
        laid = merge_dicts(laid, nest_value(path, value))
    return laid


def check_keys(section: Mapping[str, Any]) -> None:
    """Raise SweepError for keys that make variants or name them, and for random settings of no keys."""
    seeds = section["seed_keys"] if section["seeds"] > 1 else []
    lists = {"grid": section["grid"], "random.keys": section["random"].get("keys", {}), "seed_keys": seeds}
    for name, keys in [*lists.items(), *(("sizes", size) for size in section["sizes"])]:
        if wrong := next((key for key in keys if key.partition(".")[0] in SWEEP_SECTIONS), None):
            raise SweepError(
                f"sweep.{name} has the key {wrong}; it takes keys of steps and filters, and none of sweep or variants"
            )
    count = section["random"].get("count", 0)
    if count and not section["random"].get("keys"):
        raise SweepError(
            f"sweep.random.count is {count}, and sweep.random.keys is empty: give keys with a list of values, or with low and high"
        )


def grid_settings(keys: Mapping[str, Sequence[Any]]) -> Iterator[Settings]:
    """Every combination of the keys' values; none if there are no keys."""
    if keys:
        for values in itertools.product(*keys.values()):
            yield dict(zip(keys, values, strict=True))


def random_settings(section: Mapping[str, Any]) -> Iterator[Settings]:
    """`count` random settings of `keys`: of a list one of its values, of `low` to `high` a number, with `log` uniform in its logarithm.

    Raises SweepError for a range that is none.
    """
    keys = section.get("keys", {})
    for number in range(section.get("count", 0)):
        yield {
            key: _value_in_domain(key, domain, _uniform_share(section.get("seed", 0), key, number))
            for key, domain in keys.items()
        }


def _value_in_domain(key: str, domain: Any, share: float) -> Any:
    if isinstance(domain, list):
        return domain[min(int(share * len(domain)), len(domain) - 1)]
    low, high = domain["low"], domain["high"]
    if not low < high or (domain.get("log") and low <= 0):
        raise SweepError(
            f"sweep.random.keys.{key} is {domain}: low must be below high"
            + (", and above 0 with log" if domain.get("log") else "")
        )
    value = math.exp(math.log(low) + share * math.log(high / low)) if domain.get("log") else low + share * (high - low)
    if domain.get("integer"):
        return round(value)
    return float(f"{value:.{DIGITS}g}")


def _uniform_share(seed: int, key: str, number: int) -> float:
    digest = blake2b(f"sweep\x1f{seed}\x1f{key}\x1f{number}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / (1 << 53)


def leave_one_out(config: Mapping[str, Any], keys: Sequence[str]) -> Iterator[tuple[str, Settings]]:
    """(name, settings) for each part of the lists that keys name: the list without it. A filter that another one needs is not left out.

    Raises SweepError for a key of no list.
    """
    for key in keys:
        path = ALIASES.get(key, key)
        parts = lookup(dict(config), path) if has_path(dict(config), path) else None
        if not isinstance(parts, list) or len(parts) < 2:
            raise SweepError(
                f"sweep.leave_one_out has {key!r}, {_wrong_key_text(config, key, parts, list)}; it takes keys of lists with two parts "
                "or more, such as filters, sources or heuristics.select.families"
            )
        for number, part in enumerate(parts):
            rest = [*parts[:number], *parts[number + 1 :]]
            if path != "filters" or order_problem(rest) is None:
                yield _clean_name(f"without-{_value_name(part)}"), {path: rest}


def repeat_with_seeds(
    config: Mapping[str, Any], groups: list[tuple[str, Settings]], seeds: int, keys: Sequence[str]
) -> list[tuple[str, Settings]]:
    """Each setting as it is and with `seeds` − 1 other seeds, the main run's too: seeds that follow the config's.

    Raises SweepError for a key of no number.
    """
    out = [*groups] if seeds == 1 else []
    for name, group in [("", Settings()), *groups] if seeds > 1 else []:
        for more in range(seeds):
            seed_values = {key: _seed_value(config, key) + more for key in keys} if more else {}
            if group or seed_values:
                out.append(("-".join(filter(None, [name, f"seed-{more}" if more else ""])), {**group, **seed_values}))
    return out


def _seed_value(config: Mapping[str, Any], key: str) -> int:
    value = lookup(dict(config), key) if has_path(dict(config), key) else None
    if not isinstance(value, int):
        raise SweepError(
            f"sweep.seed_keys has {key!r}, {_wrong_key_text(config, key, value, int)}; it takes keys of whole numbers, such as "
            "pretrain.train.seed"
        )
    return value


def _wrong_key_text(config: Mapping[str, Any], key: str, value: Any, kind: type) -> str:
    """What a key is that does not do: its value, or that there is none, with the nearest key of that kind."""
    path = ALIASES.get(key, key)
    if has_path(dict(config), path):
        return f"which is {value!r}"
    candidates = [
        name for name, entry in flatten(dict(config)).items() if isinstance(entry, kind) and not isinstance(entry, bool)
    ]
    near = difflib.get_close_matches(key, [*candidates, *(ALIASES if kind is list else ())], n=1)
    return "which is no key" + (f" (did you mean {near[0]}?)" if near else "")


def variant_name(settings: Settings) -> str:
    """A name by the keys and values: `learning_rate-0_001-seed-1`. Of lists what is in them, or where that is long a hash."""
    parts = []
    for path, value in settings.items():
        key = path.rpartition(".")[2]
        parts.append(f"{key}-{_value_name(value)}")
    name = _clean_name("-".join(parts))
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9].rstrip('-_')}-{_settings_hash(settings)}"


def _value_name(value: Any) -> str:
    if isinstance(value, list):
        return "-".join(_value_name(part) for part in value)
    if isinstance(value, dict):
        if "name" in value:
            return str(value["name"])
        return "-".join(f"{key}-{_value_name(part)}" for key, part in value.items())
    if isinstance(value, float):  # as many digits as tell it from every other number
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value).lower()


def _clean_name(name: str) -> str:
    """Small letters, digits, _ and -, a letter first."""
    name = re.sub(r"[^a-z0-9_-]+", "_", name.lower().replace("+", "")).strip("_-")
    return name if name[:1].isalpha() else f"v{name}"


def _settings_hash(settings: Settings) -> str:
    return blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=4).hexdigest()
