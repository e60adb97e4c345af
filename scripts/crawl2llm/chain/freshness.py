"""Whether results are up to date, by their manifests alone: no clock and no record of Snakemake's decides.

A task's result is up to date if and only if its manifest has the fingerprint that is expected now, its files are there
with the sizes that it says, the source files that it was made from are the same, and its inputs hold what it consumed. An
input may be gone (a step deleted to free the disk): it is not made again for that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from crawl2llm.chain import changed_sources
from crawl2llm.chain.steps import CRAWL, LIST, SETS, STAGE, SYNTHESIZE, is_of_main
from crawl2llm.core import manifest_ranges, record
from crawl2llm.core.console import form, quantity
from crawl2llm.core.manifest import Manifest, ManifestError, NewerError, combined, digest
from crawl2llm.core.nested_dicts import flat

WORDS = "not up to date: "  # before the reason, in what Snakemake prints
ABOVE = (
    "other settings or code above: "  # before the steps whose fingerprints differ, where nothing of the step's own does
)
WITHOUT_INPUT = (CRAWL, LIST, SETS, STAGE, *SYNTHESIZE)  # steps whose manifests name no inputs: they read no result
UNKNOWN = "other settings or code; no record beside its manifest says which"
RENAMED = "code of modules that were renamed or moved"
KEEP_RENAMED = f"{RENAMED}: if nothing else in it changed, `crawl2llm accept` keeps these results"
OLD = "made by an earlier version of the project: its manifest names no inputs"


@dataclass
class Freshness:
    """What is asked of the results of one variant.

    place: (step, task) → the manifest's path. contents: shard → digest of its source files. Manifests are read once.
    files: shard → its source files as `source=root/./name`, which are named where they were replaced. main: `place` of main, of which some
    steps read in every variant.
    """

    place: Callable[[str, str], Path]
    contents: dict[str, str]
    files: dict[str, list[str]] = field(default_factory=dict)
    main: Callable[[str, str], Path] | None = None
    _read: dict[Path, Manifest | None] = field(default_factory=dict)
    _why: dict[tuple[Path, str], str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # With 1,000 shards the manifests name 60,000 inputs, which are 8,000 other manifests.
        self.place = cache(self.place)
        self.main = cache(self.main or self.place)
        self._input, self._mark, self._other = cache(self._find_input), cache(self._find_mark), cache(self._find_other)

    def manifest(self, path: Path) -> Manifest | None:
        """The manifest at `path`; None where there is none that is readable. Raises NewerError."""
        if path not in self._read:
            try:
                self._read[path] = Manifest.parse(path)
            except NewerError:
                raise
            except ManifestError:
                self._read[path] = None
        return self._read[path]

    def stale(self, step: str, tasks: Iterable[str], fingerprint: str) -> str | None:
        """Why one of these tasks of a step is not up to date, in words for a person; None where all are."""
        mark = digest(fingerprint)
        return next(filter(None, (self._once(self.place(step, task), mark, fingerprint) for task in tasks)), None)

    def other(self, step: str, tasks: Iterable[str], fingerprint: str) -> bool:
        """Whether one of these tasks of a step has a result of another fingerprint."""
        held = filter(None, (self.manifest(self.place(step, task)) for task in tasks))
        mark = digest(fingerprint)
        return any(found.fingerprint != mark for found in held)

    def _once(self, path: Path, mark: str, fingerprint: str) -> str | None:
        """Each manifest's files are looked at once: a plan asks again for what it already knows. mark: the fingerprint's digest."""
        if (path, mark) not in self._why:
            self._why[path, mark] = self._stale(path, mark, fingerprint)
        return self._why[path, mark]

    def _stale(self, path: Path, mark: str, fingerprint: str) -> str | None:
        found = self.manifest(path)
        if found is None:
            return "damaged manifest" if path.exists() else "not made yet"
        if found.fingerprint != mark:
            before = record.read(path).get("fingerprint")
            return (before and " and ".join(difference(before, json.loads(fingerprint)))) or (
                UNKNOWN if found.inputs or found.sources else OLD
            )
        return self.spoiled(found)

    def spoiled(self, found: Manifest, deep: bool = False) -> str | None:
        """Why a result is none, whatever its fingerprint: damaged, or made from other input than is there now; None where it is one."""
        if damage := found.damage(deep):
            return damage[0]
        return self.other_input(found)

    def other_input(self, found: Manifest) -> str | None:
        """Why a result was made from other input than is there now; None where it was not."""
        if not found.inputs and not found.sources and found.step not in WITHOUT_INPUT:
            return OLD
        if not self.is_of_these_sources(found):
            return self._replaced(found)
        return next(filter(None, (self._moved(found, key) for key in found.inputs if key != "sources")), None)

    def is_of_these_sources(self, found: Manifest) -> bool:
        """Whether a result goes back to the source files that are there now."""
        return found.sources == self._sources(found.sources)

    def _replaced(self, found: Manifest) -> str:
        """Which source files differ; of what was made from all shards, that some do: the lines of ingest.extract name them."""
        shards = [shard for shard in found.sources if shard != "all"]
        if not shards:
            return f"other {changed_sources.WORDS}"
        if found.step != "ingest.extract" or found.path is None:
            return f"other {changed_sources.WORDS} in shard {', '.join(shards)}"
        return changed_sources.named(found.path, shards[0], self.files.get(shards[0], []))

    def _moved(self, found: Manifest, key: str) -> str | None:
        """Why the input `key` is not what the manifest consumed; None where it is."""
        if key == LIST and self._input(key) is None:  # which files there are is known from nothing else
            return f"{key} is gone"
        main = is_of_main(found.step, key.partition(" ")[0])
        parts = found.inputs[key].items()
        return next(filter(None, (self._other(key, part, marks, main) for part, marks in parts)), None)

    def _find_other(self, key: str, part: str, marks: str, main: bool = False) -> str | None:
        """Which of the inputs that `key` names does not hold what was consumed of it; None where all do, or are gone.

        Asked once for what many results consumed: each of 256 tasks may have read all of 4,096 shards.
        """
        for one, name, mark in manifest_ranges.each(key, part, marks):
            if self._input(one, main) is not None and self._mark(one, name, main) != mark:
                return f"{one} holds other data"
        return None

    def _find_input(self, key: str, main: bool = False) -> Manifest | None:
        """The manifest that is called `key` among the inputs of others; None where it is gone or not readable. main: that of main."""
        step, _, task = key.partition(" ")
        assert self.main
        return self.manifest((self.main if main else self.place)(step, task))

    def _find_mark(self, key: str, part: str, main: bool = False) -> str | None:
        """The digest of a part of the input `key`, as it is now; None where it is not there."""
        there = self._input(key, main)
        return there.digest_of(part) if there else None

    def _sources(self, like: dict[str, str]) -> dict[str, str]:
        """The `sources` that a result would have now which has those of the same shard, or of all."""
        if "all" in like:
            return self._all
        return {shard: self.contents.get(shard, "") for shard in like}

    @cached_property
    def _all(self) -> dict[str, str]:
        """The `sources` of what was made from all shards, worked out once: a plan asks for every manifest."""
        return combined([{shard: mark} for shard, mark in self.contents.items()])


def are_renamed(before: Collection[str], now: Collection[str]) -> bool:
    """Whether most modules of the code that a result was made by have other names now."""
    return 2 * len(set(before) - set(now)) > len(before)


def difference(old: dict[str, Any], new: dict[str, Any], whole: bool = False) -> list[str]:
    """What differs between two fingerprints (parsed): `threshold 0.4 → 0.77`, modules, files, steps above.

    whole: every module and file is named, not three of them; else RENAMED stands for modules of which most have other names now.
    """
    found = list(_differing_keys(flat(old.get("config", {})), flat(new.get("config", {}))))
    for part, word in (("code", "code of"), ("files", "the file")):
        one, other = old.get(part, {}), new.get(part, {})
        names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
        if part == "code" and are_renamed(one, other) and not whole:
            found.append(RENAMED)
        elif names:
            most = len(names) if whole else 3
            found.append(f"{word} {', '.join(names[:most])}{f' and {len(names) - most} more' * (len(names) > most)}")
    one, other = old.get("upstream", {}), new.get("upstream", {})
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    if names and not found:
        found.append(f"{ABOVE}{', '.join(names)}")
    return found


def _differing_keys(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """`threshold 0.4 → 0.77` for each leaf that differs; of lists of mappings the entries and keys that do."""
    for key in [*now, *(key for key in before if key not in now)]:
        if key in before and key in now and before[key] == now[key]:
            continue
        lists: list[Any] = [side.get(key) for side in (before, now)]
        if all(isinstance(value, list) and all(isinstance(entry, dict) for entry in value) for value in lists):
            yield from _differing_entries(key, *lists)
            continue
        one, other = (_text(side[key]) if key in side else "not set" for side in (before, now))
        if one == other:  # text and a number, such as "1" and 1
            one, other = (
                repr(side[key]) if isinstance(side[key], str) else text for side, text in ((before, one), (now, other))
            )
        start = _difference_at(one, other)
        yield f"{key} {_short(one, start)} → {_short(other, start)}"


def _differing_entries(key: str, before: list[dict[str, Any]], now: list[dict[str, Any]]) -> Iterator[str]:
    """`sources[web].unwrap not set → True`, `sources[books] is new`: what differs between two lists of mappings.

    An entry is called by its `name` if all have one of their own, else by its place from 0.
    """
    if all(len({str(entry.get("name")) for entry in side if "name" in entry}) == len(side) for side in (before, now)):
        old, new = ({f"{key}[{entry['name']}]": entry for entry in side} for side in (before, now))
    else:
        old, new = ({f"{key}[{place}]": entry for place, entry in enumerate(side)} for side in (before, now))
    if old == new:
        yield f"{key} in another order"
    for name, entry in new.items():
        if name in old:
            yield from _differing_keys(flat(old[name], name), flat(entry, name))
        else:
            yield f"{name} is new"
    yield from (f"{name} is gone" for name in old if name not in new)


def replaced_in_words(changed: int, above: int, total: int) -> str:
    """That `changed` of a run's tasks have other settings or code than their results, and `above` more read what these make; "" of none."""
    said = []
    if changed:
        said.append(
            f"{changed:,} of {quantity(total, 'task')} {form(changed, 'replaces', 'replace')} results made with other settings or code"
        )
    if above:
        which = f"{above:,} more" if changed else f"{above:,} of {quantity(total, 'task')}"
        said.append(
            f"{which} only {form(above, 'reads', 'read')} what other tasks make anew: each ends at once, and keeps its result, if "
            "what it reads comes out as before"
        )
    return "; ".join([*said, "`crawl2llm plan` says which and why"]) if said else ""


def _text(value: Any) -> str:
    return "null" if value is None else str(value)


def _difference_at(one: str, other: str) -> int:
    """How many characters of the beginning two texts have in common."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _short(text: str, at: int) -> str:
    """40 characters of a text at most: its beginning, or what stands around character `at` if that would be cut off."""
    if len(text) <= 40:
        return text
    if at < 37:
        return text[:37] + "..."
    start = at - 12
    return f"...{text[start : start + 34]}" + ("..." if len(text) > start + 34 else "")
