"""Which variants are trainings of one setting: those that differ in the keys of seeds alone are its replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crawl2llm.core.manifest import canonical
from crawl2llm.core.nested_dicts import flat

MAIN = "main"
Found = tuple[dict[str, tuple[Any, Any]], list[str]]  # changes, variants
ASIDE = ("variants", "sweep", "reference")  # make variants, or say what these are compared with


@dataclass(frozen=True)
class Setting:
    """A setting: its name (of its first variant; `main` for the config itself), the keys that differ from main, and its variants.

    changes: dotted key → (value in main, value here); None stands for a key that one of them has not.
    """

    name: str
    changes: dict[str, tuple[Any, Any]]
    variants: tuple[str, ...]


def settings(
    configs: Mapping[str, dict[str, Any]],
    seed_keys: Iterable[str],
    ignored: Iterable[str] = (),
    results: Mapping[str, str] | None = None,
) -> list[Setting]:
    """The settings of a run, main's first, in the order of their first variants.

    configs: the complete config of every variant. ignored: keys that decide no result, such as those of placement; what is below those of
    ASIDE never counts. results: by variant what names the files of its models. Settings that share one are one, under the first's name:
    main and a variant that sets a key to its default.
    """
    main, aside = flat(configs[MAIN]), {*ignored, *seed_keys}
    found: dict[str, Found] = {}
    for name, config in configs.items():
        own = flat(config)
        changes = {
            key: (main.get(key), own.get(key))
            for key in dict.fromkeys([*main, *own])
            if key not in aside
            and key.partition(".")[0] not in ASIDE
            and (key in main, main.get(key)) != (key in own, own.get(key))
        }
        found.setdefault(canonical(changes), (changes, []))[1].append(name)
    joined = _joined(found.values(), results or {})
    return [Setting(variants[0], changes, tuple(variants)) for changes, variants in joined]


def _joined(found: Iterable[Found], results: Mapping[str, str]) -> list[Found]:
    """Settings that share a result as one, which has the changes of the first."""
    out: list[Found] = []
    for changes, variants in found:
        own = {results.get(name, name) for name in variants}
        alike = [one for one in out if any(results.get(name, name) in own for name in one[1])]
        if not alike:
            out.append((changes, [*variants]))
            continue
        for other in alike[1:]:
            alike[0][1].extend(other[1])
            out = [one for one in out if one is not other]
        alike[0][1].extend(variants)
    return out
