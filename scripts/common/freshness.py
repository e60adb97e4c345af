"""Whether results are up to date, by their manifests alone: no clock and no record of Snakemake's decides.

A task's result is up to date if and only if its manifest has the fingerprint that is expected now, its files are there
with the sizes that it says, the source files that it was made from are the same, and its inputs hold what it consumed. An
input may be gone (a step deleted to free the disk): it is not made again for that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from scripts.common import record
from scripts.common.inputs import holds
from scripts.common.manifest import Manifest, ManifestError, combined, digest

__tracked__ = False  # says what is to be done, and computes nothing: see scripts/common/fingerprint.py

WORDS = "not up to date: "  # before the reason, in what Snakemake prints
OLD = "made by an earlier version of the project: its manifest names no inputs"


@dataclass
class Freshness:
    """What is asked of the results of one variant.

    place: (step, task) → the manifest's path. contents: shard → digest of its source files. Manifests are read once.
    """

    place: Callable[[str, str], Path]
    contents: dict[str, str]
    _read: dict[Path, Manifest | None] = field(default_factory=dict)
    _why: dict[tuple[Path, str], str | None] = field(default_factory=dict)

    def manifest(self, path: Path) -> Manifest | None:
        """The manifest at `path`; None where there is none that is readable."""
        if path not in self._read:
            try:
                self._read[path] = Manifest.parse(path)
            except ManifestError:
                self._read[path] = None
        return self._read[path]

    def stale(self, step: str, tasks: Iterable[str], fingerprint: str) -> str | None:
        """Why one of these tasks of a step is not up to date, in words for a person; None where all are."""
        return next(filter(None, (self._once(self.place(step, task), fingerprint) for task in tasks)), None)

    def other(self, step: str, tasks: Iterable[str], fingerprint: str) -> bool:
        """Whether one of these tasks of a step has a result of another fingerprint."""
        held = filter(None, (self.manifest(self.place(step, task)) for task in tasks))
        return any(found.fingerprint != digest(fingerprint) for found in held)

    def _once(self, path: Path, fingerprint: str) -> str | None:
        """Each manifest's files are looked at once: a plan asks again for what it already knows."""
        if (path, fingerprint) not in self._why:
            self._why[path, fingerprint] = self._stale(path, fingerprint)
        return self._why[path, fingerprint]

    def _stale(self, path: Path, fingerprint: str) -> str | None:
        found = self.manifest(path)
        if found is None:
            return "damaged manifest" if path.exists() else "not made yet"
        if found.fingerprint != digest(fingerprint):
            before = record.read(path).get("fingerprint", {})
            return " and ".join(difference(before, json.loads(fingerprint))) or OLD
        if damage := found.damage():
            return damage[0]
        if not found.inputs and not found.sources and found.step != "crawl.render":
            return OLD
        if found.sources != self._sources(found.sources):
            return "other source files"
        return next(filter(None, (self._moved(found, key) for key in found.inputs if key != "sources")), None)

    def _moved(self, found: Manifest, key: str) -> str | None:
        """Why the input `key` is not what the manifest consumed; None where it is."""
        step, _, task = key.partition(" ")
        there = self.manifest(self.place(step, task))
        if there is None:
            return None
        return None if holds(there, found.inputs[key]) else f"{key} holds other data"

    def _sources(self, like: dict[str, str]) -> dict[str, str]:
        """The `sources` that a result would have now which has those of the same shard, or of all."""
        if "all" in like:
            return self._all
        return {shard: self.contents.get(shard, "") for shard in like}

    @cached_property
    def _all(self) -> dict[str, str]:
        """The `sources` of what was made from all shards, worked out once: a plan asks for every manifest."""
        return combined([{shard: mark} for shard, mark in self.contents.items()])


def difference(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs between two fingerprints (parsed): `threshold 0.4 → 0.77`, modules, files, steps above."""
    found = []
    before, now = flat(old.get("config", {})), flat(new.get("config", {}))
    for key in [*now, *(key for key in before if key not in now)]:
        if before.get(key) != now.get(key):
            found.append(f"{key} {_short(before.get(key))} → {_short(now.get(key))}")
    for part, word in (("code", "code of"), ("files", "the file")):
        one, other = old.get(part, {}), new.get(part, {})
        names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
        if names:
            found.append(f"{word} {', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}")
    one, other = old.get("upstream", {}), new.get("upstream", {})
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    if names and not found:
        found.append(f"upstream: {', '.join(names)}")
    return found


def flat(section: dict[str, Any], path: str = "") -> dict[str, Any]:
    """A section's leaves by dotted key."""
    out: dict[str, Any] = {}
    for key, value in section.items():
        here = f"{path}.{key}" if path else str(key)
        out |= flat(value, here) if isinstance(value, dict) and value else {here: value}
    return out


def _short(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
