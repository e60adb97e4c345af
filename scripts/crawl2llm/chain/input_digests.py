"""Whether results still belong together: compares the inputs that a manifest names with what is there now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crawl2llm.chain.steps import folder_of
from crawl2llm.core import manifest_ranges
from crawl2llm.core.manifest import Manifest, ManifestError


def holds(there: Manifest, parts: dict[str, str]) -> bool:
    """Whether a manifest holds what another task consumed of it, part by part."""
    return all(there.digest_of(part) == mark for part, mark in parts.items())


@dataclass
class Inputs:
    """The manifests below `results` (all variants) as inputs of each other. Each is read once."""

    results: Path
    _read: dict[Path, Manifest | None] = field(default_factory=dict)

    def of(self, manifest: Manifest) -> Iterator[tuple[str, Path, bool | None]]:
        """(step, path, whether it holds what was consumed) of every input: of the manifest's own variant, of main, or of another that has
        the same.

        None: it is gone, or cannot be read.
        """
        assert manifest.path is not None
        variant = manifest.path.relative_to(self.results).parts[0]
        for key, parts in manifest_ranges.unpacked(manifest.inputs).items():
            if key == "sources" or not parts:
                continue
            step, _, task = key.partition(" ")
            other, _, step = step.rpartition("/")  # report.compare reads other variants: `hot/evaluate.common base`
            below = folder_of(step) / (f"{task}.manifest.json" if task else "manifest.json")
            own, main = self.results / (other or variant) / below, self.results / "main" / below
            # A folder of its own may be left from a time when the variant set more keys.
            path = own if own.exists() and (self._same(own, parts) or not self._same(main, parts)) else main
            if not self._same(path, parts):
                others = (folder / below for folder in sorted(self.results.glob("*/")))
                path = next((other for other in others if other.exists() and self._same(other, parts)), path)
            yield step, path, self._same(path, parts)

    def _same(self, path: Path, parts: dict[str, str]) -> bool | None:
        if path not in self._read:
            try:
                self._read[path] = Manifest.parse(path)
            except ManifestError:
                self._read[path] = None
        there = self._read[path]
        return None if there is None else holds(there, parts)
