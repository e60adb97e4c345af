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
from crawl2llm.chain.steps import LIST, STEPS, is_of_main
from crawl2llm.core import manifest_ranges, record
from crawl2llm.core.console import format_quantity, singular_or_plural
from crawl2llm.core.manifest import Manifest, ManifestError, NewerError, combine_sources, digest
from crawl2llm.core.nested_dicts import flatten
from crawl2llm.core.phrases import and_more

STALE_PREFIX = "not up to date: "  # before the reason, in what Snakemake prints
# before the steps whose fingerprints differ, where nothing of the step's own does
ABOVE_PREFIX = "other settings or code above: "
# Steps whose manifests name no inputs: they read no result.
WITHOUT_INPUT = tuple(step for step, facts in STEPS.items() if not facts.needs and not facts.common)
UNKNOWN_CHANGE = "other settings or code; no record beside its manifest says which"
MODULES_RENAMED = "code of modules that were renamed or moved"
KEEP_RENAMED = f"{MODULES_RENAMED}: if nothing else in it changed, `crawl2llm accept` keeps these results"
OLD_VERSION = "made by an earlier version of the project: its manifest names no inputs"


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
    _manifests: dict[Path, Manifest | None] = field(default_factory=dict)
    _stale_reasons: dict[tuple[Path, str], str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # With 1,000 shards the manifests name 60,000 inputs, which are 8,000 other manifests.
        self.place = cache(self.place)
        self.main = cache(self.main or self.place)
        self._input = cache(self._find_input)
        self._input_digest = cache(self._find_input_digest)
        self._differing_input = cache(self._find_differing_input)

    def read_manifest(self, path: Path) -> Manifest | None:
        """The manifest at `path`; None if there is none that is readable. Raises NewerError."""
        if path not in self._manifests:
            try:
                self._manifests[path] = Manifest.read_unchecked(path)
            except NewerError:
                raise
            except ManifestError:
                self._manifests[path] = None
        return self._manifests[path]

    def why_stale(self, step: str, tasks: Iterable[str], fingerprint: str) -> str | None:
        """Why one of these tasks of a step is not up to date, in words for a person; None if all are."""
        mark = digest(fingerprint)
        reasons = (self._why_stale_cached(self.place(step, task), mark, fingerprint) for task in tasks)
        return next(filter(None, reasons), None)

    def has_other_fingerprint(self, step: str, tasks: Iterable[str], fingerprint: str) -> bool:
        """Whether one of these tasks of a step has a result of another fingerprint."""
        manifests = filter(None, (self.read_manifest(self.place(step, task)) for task in tasks))
        mark = digest(fingerprint)
        return any(manifest.fingerprint != mark for manifest in manifests)

    def _why_stale_cached(self, path: Path, mark: str, fingerprint: str) -> str | None:
        """Each manifest's files are looked at once: a plan asks again for what it already knows. mark: the fingerprint's digest."""
        if (path, mark) not in self._stale_reasons:
            self._stale_reasons[path, mark] = self._find_stale_reason(path, mark, fingerprint)
        return self._stale_reasons[path, mark]

    def _find_stale_reason(self, path: Path, mark: str, fingerprint: str) -> str | None:
        manifest = self.read_manifest(path)
        if manifest is None:
            return "damaged manifest" if path.exists() else "not made yet"
        if manifest.fingerprint != mark:
            before = record.read(path).get("fingerprint")
            return (before and " and ".join(fingerprint_differences(before, json.loads(fingerprint)))) or (
                UNKNOWN_CHANGE if manifest.inputs or manifest.sources else OLD_VERSION
            )
        return self.damage_reason(manifest)

    def damage_reason(self, manifest: Manifest, deep: bool = False) -> str | None:
        """Why a result is none, whatever its fingerprint: damaged, or made from other input than is there now; None if it is one."""
        if damage := manifest.file_problems(deep):
            return damage[0]
        return self.why_other_input(manifest)

    def why_other_input(self, manifest: Manifest) -> str | None:
        """Why a result was made from other input than is there now; None if it was not."""
        if not manifest.inputs and not manifest.sources and manifest.step not in WITHOUT_INPUT:
            return OLD_VERSION
        if not self.has_current_sources(manifest):
            return self._replaced_sources_text(manifest)
        reasons = (self._why_input_differs(manifest, key) for key in manifest.inputs if key != "sources")
        return next(filter(None, reasons), None)

    def has_current_sources(self, manifest: Manifest) -> bool:
        """Whether a result goes back to the source files that are there now."""
        return manifest.sources == self._current_sources(manifest.sources)

    def _replaced_sources_text(self, manifest: Manifest) -> str:
        """Which source files differ; of what was made from all shards, that some do: the lines of ingest.extract name them."""
        shards = [shard for shard in manifest.sources if shard != "all"]
        if not shards:
            return f"other {changed_sources.SOURCE_FILES}"
        if manifest.step != "ingest.extract" or manifest.path is None:
            return f"other {changed_sources.SOURCE_FILES} in shard {', '.join(shards)}"
        return changed_sources.changed_files_text(manifest.path, shards[0], self.files.get(shards[0], []))

    def _why_input_differs(self, manifest: Manifest, key: str) -> str | None:
        """Why the input `key` is not what the manifest consumed; None if it is."""
        if key == LIST and self._input(key) is None:  # which files there are is known from nothing else
            return f"{key} is gone"
        main = is_of_main(manifest.step, key.partition(" ")[0])
        parts = manifest.inputs[key].items()
        return next(filter(None, (self._differing_input(key, part, marks, main) for part, marks in parts)), None)

    def _find_differing_input(self, key: str, part: str, marks: str, main: bool = False) -> str | None:
        """Which of the inputs that `key` names does not hold what was consumed of it; None if all do, or are gone.

        Asked once for what many results consumed: each of 256 tasks may have read all of 4,096 shards.
        """
        for input_key, name, mark in manifest_ranges.part_digests(key, part, marks):
            if self._input(input_key, main) is not None and self._input_digest(input_key, name, main) != mark:
                return f"{input_key} holds other data"
        return None

    def _find_input(self, key: str, main: bool = False) -> Manifest | None:
        """The manifest that is called `key` among the inputs of others; None if it is gone or not readable. main: that of main."""
        step, _, task = key.partition(" ")
        assert self.main
        return self.read_manifest((self.main if main else self.place)(step, task))

    def _find_input_digest(self, key: str, part: str, main: bool = False) -> str | None:
        """The digest of a part of the input `key`, as it is now; None if it is not there."""
        manifest = self._input(key, main)
        return manifest.digest_of(part) if manifest else None

    def _current_sources(self, sources: dict[str, str]) -> dict[str, str]:
        """The `sources` that a result would have now which has those of the same shard, or of all."""
        if "all" in sources:
            return self._all_sources
        return {shard: self.contents.get(shard, "") for shard in sources}

    @cached_property
    def _all_sources(self) -> dict[str, str]:
        """The `sources` of what was made from all shards, worked out once: a plan asks for every manifest."""
        return combine_sources([{shard: mark} for shard, mark in self.contents.items()])


def are_renamed(before: Collection[str], now: Collection[str]) -> bool:
    """Whether most modules of the code that a result was made by have other names now."""
    return 2 * len(set(before) - set(now)) > len(before)


def fingerprint_differences(old: dict[str, Any], new: dict[str, Any], whole: bool = False) -> list[str]:
    """What differs between two fingerprints (parsed): `threshold 0.4 → 0.77`, modules, files, steps above.

    whole: name every module and file, not three of them. Otherwise MODULES_RENAMED replaces the list if most of its modules have new names.
    """
    differences = list(_differing_keys(flatten(old.get("config", {})), flatten(new.get("config", {}))))
    for part, word in (("code", "code of"), ("files", "the file")):
        old_part, new_part = old.get(part, {}), new.get(part, {})
        names = sorted(name for name in old_part.keys() | new_part.keys() if old_part.get(name) != new_part.get(name))
        if part == "code" and are_renamed(old_part, new_part) and not whole:
            differences.append(MODULES_RENAMED)
        elif names:
            differences.append(f"{word} {and_more(names, len(names) if whole else 3)}")
    old_part, new_part = old.get("upstream", {}), new.get("upstream", {})
    names = sorted(name for name in old_part.keys() | new_part.keys() if old_part.get(name) != new_part.get(name))
    if names and not differences:
        differences.append(f"{ABOVE_PREFIX}{', '.join(names)}")
    return differences


def _differing_keys(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """`threshold 0.4 → 0.77` for each leaf that differs; of lists of mappings the entries and keys that do."""
    for key in [*now, *(key for key in before if key not in now)]:
        if key in before and key in now and before[key] == now[key]:
            continue
        lists: list[Any] = [side.get(key) for side in (before, now)]
        if all(isinstance(value, list) and all(isinstance(entry, dict) for entry in value) for value in lists):
            yield from _differing_entries(key, *lists)
            continue
        old_text, new_text = (_value_text(side[key]) if key in side else "not set" for side in (before, now))
        if old_text == new_text:  # text and a number, such as "1" and 1
            old_text, new_text = (
                repr(side[key]) if isinstance(side[key], str) else text
                for side, text in ((before, old_text), (now, new_text))
            )
        start = _difference_at(old_text, new_text)
        yield f"{key} {_shorten_text(old_text, start)} → {_shorten_text(new_text, start)}"


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
            yield from _differing_keys(flatten(old[name], name), flatten(entry, name))
        else:
            yield f"{name} is new"
    yield from (f"{name} is gone" for name in old if name not in new)


def replacement_text(changed: int, above: int, total: int) -> str:
    """That `changed` of a run's tasks have other settings or code than their results, and `above` more read what these make; "" of none."""
    parts = []
    all_tasks = format_quantity(total, "task")
    if changed:
        replaces = singular_or_plural(changed, "replaces", "replace")
        parts.append(f"{changed:,} of {all_tasks} {replaces} results made with other settings or code")
    if above:
        which = f"{above:,} more" if changed else f"{above:,} of {all_tasks}"
        parts.append(
            f"{which} only {singular_or_plural(above, 'reads', 'read')} what other tasks make anew: each ends at once, and keeps its "
            "result, if what it reads comes out as before"
        )
    return "; ".join([*parts, "`crawl2llm plan` says which and why"]) if parts else ""


def _value_text(value: Any) -> str:
    return "null" if value is None else str(value)


def _difference_at(first: str, second: str) -> int:
    """How many characters of the beginning two texts have in common."""
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def _shorten_text(text: str, at: int) -> str:
    """40 characters of a text at most: its beginning, or what stands around character `at` if that would be cut off."""
    if len(text) <= 40:
        return text
    if at < 37:
        return text[:37] + "..."
    start = at - 12
    return f"...{text[start : start + 34]}" + ("..." if len(text) > start + 34 else "")
