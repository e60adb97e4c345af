"""Whether results still belong together: compares the inputs that a manifest names with what is there now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crawl2llm.chain.steps import folder_of
from crawl2llm.core import manifest_ranges
from crawl2llm.core.manifest import Manifest, ManifestError


def holds_parts(manifest: Manifest, parts: dict[str, str]) -> bool:
    """Whether a manifest holds what another task consumed of it, part by part."""
    return all(manifest.digest_of(part) == mark for part, mark in parts.items())


@dataclass
class Inputs:
    """The manifests below `results` (all variants) as inputs of each other. Each is read once."""

    results: Path
    _manifests: dict[Path, Manifest | None] = field(default_factory=dict)

    def inputs_of(self, manifest: Manifest) -> Iterator[tuple[str, Path, bool | None]]:
        """(step, path, whether it holds what was consumed) of every input: of the manifest's own variant, of main, or of another that has
        the same.

        None: it is gone, or cannot be read.
        """
        assert manifest.path is not None
        variant = manifest.path.relative_to(self.results).parts[0]
        for key, parts in manifest_ranges.unpack_ranges(manifest.inputs).items():
            if key == "sources" or not parts:
                continue
            step, _, task = key.partition(" ")
            other, _, step = step.rpartition("/")  # report.compare reads other variants: `hot/evaluate.common base`
            below = folder_of(step) / (f"{task}.manifest.json" if task else "manifest.json")
            own_path, main = self.results / (other or variant) / below, self.results / "main" / below
            # A folder of its own may be left from a time when the variant set more keys.
            path = main
            if own_path.exists() and (self._holds_parts(own_path, parts) or not self._holds_parts(main, parts)):
                path = own_path
            if not self._holds_parts(path, parts):
                candidates = (folder / below for folder in sorted(self.results.glob("*/")))
                path = next((other for other in candidates if other.exists() and self._holds_parts(other, parts)), path)
            yield step, path, self._holds_parts(path, parts)

    def _holds_parts(self, path: Path, parts: dict[str, str]) -> bool | None:
        if path not in self._manifests:
            try:
                self._manifests[path] = Manifest.read_unchecked(path)
            except ManifestError:
                self._manifests[path] = None
        manifest = self._manifests[path]
        return None if manifest is None else holds_parts(manifest, parts)
