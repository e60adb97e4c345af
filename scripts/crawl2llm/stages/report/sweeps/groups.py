"""Which variants are trainings of one setting: those that differ in the keys of seeds alone are its replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crawl2llm.core.manifest import canonical_json
from crawl2llm.core.nested_dicts import flatten

MAIN = "main"
SettingGroup = tuple[dict[str, tuple[Any, Any]], list[str]]  # changes, variants
IGNORED_SECTIONS = ("variants", "sweep", "reference")  # make variants, or say what these are compared with


@dataclass(frozen=True)
class Setting:
    """A setting: its name (of its first variant; `main` for the config itself), the keys that differ from main, and its variants.

    changes: dotted key → (value in main, value here); None stands for a key that one of them has not.
    """

    name: str
    changes: dict[str, tuple[Any, Any]]
    variants: tuple[str, ...]


def group_settings(
    configs: Mapping[str, dict[str, Any]],
    seed_keys: Iterable[str],
    ignored: Iterable[str] = (),
    results: Mapping[str, str] | None = None,
) -> list[Setting]:
    """The settings of a run, main's first, in the order of their first variants.

    configs: the complete config of every variant. ignored: keys that decide no result, such as those of placement; what is below those of
    IGNORED_SECTIONS never counts. results: by variant what names the files of its models. Settings that share one are one, under the
    first's name: main and a variant that sets a key to its default.
    """
    main, aside = flatten(configs[MAIN]), {*ignored, *seed_keys}
    groups: dict[str, SettingGroup] = {}
    for name, config in configs.items():
        variant_keys = flatten(config)
        changes = {
            key: (main.get(key), variant_keys.get(key))
            for key in dict.fromkeys([*main, *variant_keys])
            if key not in aside
            and key.partition(".")[0] not in IGNORED_SECTIONS
            and (key in main, main.get(key)) != (key in variant_keys, variant_keys.get(key))
        }
        groups.setdefault(canonical_json(changes), (changes, []))[1].append(name)
    merged = _merge_same_results(groups.values(), results or {})
    return [Setting(variants[0], changes, tuple(variants)) for changes, variants in merged]


def _merge_same_results(groups: Iterable[SettingGroup], results: Mapping[str, str]) -> list[SettingGroup]:
    """Settings that share a result as one, which has the changes of the first."""
    out: list[SettingGroup] = []
    for changes, variants in groups:
        results_here = {results.get(name, name) for name in variants}
        alike = [group for group in out if any(results.get(name, name) in results_here for name in group[1])]
        if not alike:
            out.append((changes, [*variants]))
            continue
        for duplicate in alike[1:]:
            alike[0][1].extend(duplicate[1])
            out = [group for group in out if group is not duplicate]
        alike[0][1].extend(variants)
    return out
