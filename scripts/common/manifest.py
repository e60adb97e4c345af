"""Manifests: the small JSON file that ends every task, and the handle by which the next step finds its input."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash


class ManifestError(ValueError):
    """A manifest that is unreadable, or that does not agree with its files or its own counts."""


def checksum(path: Path) -> str:
    """xxh3-128 of a file's bytes, in hex."""
    state = xxhash.xxh3_128()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` so that the file is there whole or not at all (temporary name, fsync, rename).

    The temporary name is always the same, so that what a killed run left is written over.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """An empty folder at `path`, gone afterwards; what a killed run left there is removed first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@dataclass
class Manifest:
    """What one task did. `counts` holds `in`, `kept` and `dropped` (by reason), in documents or records.

    `files` maps a path relative to the manifest's folder to {bytes, xxh3}; `summary` holds whatever the report
    shows of this step. Nothing here may depend on time, host or worker count.
    """

    step: str
    fingerprint: str
    counts: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    path: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder that the names in `files` are relative to."""
        if self.path is None:
            raise ManifestError("a manifest that was neither read nor written has no folder")
        return self.path.parent

    def file(self, name: str) -> Path:
        """The path of one of the task's files; ManifestError where the manifest does not list it."""
        if name not in self.files:
            raise ManifestError(f"{self.path}: no file {name!r} in this manifest; it lists {', '.join(self.files)}")
        return self.folder / name

    def write(self, path: Path, files: Iterable[Path]) -> Manifest:
        """Check the counts, add `files` with sizes and checksums, and write the manifest as the task's last act."""
        counts = self.counts
        if "in" in counts and counts["in"] != counts["kept"] + sum(counts["dropped"].values()):
            raise ManifestError(f"{path}: in = kept + dropped does not hold: {counts}")
        self.files = {
            str(name.relative_to(path.parent)): {"bytes": name.stat().st_size, "xxh3": checksum(name)}
            for name in sorted(files)
        }
        self.path = path
        body = {key: getattr(self, key) for key in ("step", "fingerprint", "counts", "summary", "files")}
        write_atomically(path, json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        return self

    @classmethod
    def read(cls, path: Path | str) -> Manifest:
        """Read a manifest and check that its files are there with the sizes it says."""
        path = Path(path)
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            manifest = cls(**body, path=path)
            sizes = {name: int(facts["bytes"]) for name, facts in manifest.files.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ManifestError(f"{path}: not a readable manifest: {error}") from error
        for name, expected in sizes.items():
            file = path.parent / name
            size = file.stat().st_size if file.is_file() else None
            if size != expected:
                found = "is missing" if size is None else f"has {size} bytes, not {expected}"
                raise ManifestError(
                    f"{file} {found}; its manifest {path.name} is out of date: delete the manifest and run again"
                )
        return manifest
