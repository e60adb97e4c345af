"""Folders that are complete or absent: a last small file, the seal, lists every file with its size and its checksum.

It is written when all files are on the disk, so a folder without it, or with a file of another size, does not count. Checksums take
the time to read the files, and are compared by whoever reads them all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from crawl2llm.core.manifest import checksum, sync_to_disk, write_atomically

CHECKPOINT = "checkpoint.json"  # the seal of a training's checkpoint
PATIENCE = 60.0  # seconds for a file that another node wrote to show on this one: NFS keeps listings for up to 60 s


def sync_folder(folder: Path) -> dict[str, int]:
    """Force everything below `folder` to the disk; each file's path below it → bytes."""
    sizes = {}
    for path in sorted(folder.rglob("*")):
        sync_to_disk(path)
        if path.is_file():
            sizes[str(path.relative_to(folder))] = path.stat().st_size
    sync_to_disk(folder)
    return sizes


def wrong_files(folder: Path, files: Mapping[str, int], patience: float = 0.0) -> list[str]:
    """The names in `files` that are missing or have another size, asked again for up to `patience` seconds."""
    end = time.monotonic() + patience
    while True:
        sizes = {name: (folder / name).stat().st_size if (folder / name).is_file() else None for name in files}
        wrong_names = [name for name, size in sizes.items() if size != files[name]]
        if not wrong_names or time.monotonic() > end:
            return wrong_names
        any(folder.iterdir())  # has NFS look again
        time.sleep(0.2)


def file_checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The xxh3 of files in a folder, by name."""
    return {name: checksum(folder / name) for name in names}


def seal_folder(
    folder: Path,
    name: str,
    facts: Mapping[str, Any],
    files: Mapping[str, int],
    digests: Mapping[str, str] | None = None,
) -> None:
    """Write the seal `name`: `facts`, the files that `sync_folder` returned, on every node that wrote any, and their `file_checksums`, if
    known.

    Raises OSError if a file is not there with its size.
    """
    if missing := wrong_files(folder, files, PATIENCE):
        raise OSError(f"{folder}: {', '.join(missing)} cannot be seen with the size that it was written with")
    content = {**facts, "files": dict(files), "digests": dict(sorted((digests or {}).items()))}
    write_atomically(folder / name, json.dumps(content, indent=1) + "\n")
    sync_to_disk(folder)


def read_sealed_facts(folder: Path, name: str) -> dict[str, Any]:
    """The facts of a sealed folder. Raises ValueError or OSError, which say why, if it is not complete."""
    facts, files, _ = _read_seal(folder / name)
    if bad := wrong_files(folder, files):
        raise ValueError(f"{', '.join(bad)} changed size or is missing")
    return facts


def read_sealed_digests(folder: Path, name: str) -> dict[str, str]:
    """The checksum of each file of a sealed folder; none of one that an earlier version sealed. Raises as `read_sealed_facts`."""
    return _read_seal(folder / name)[2]


def checksum_problems(folder: Path, expected: Mapping[str, str]) -> Iterator[str]:
    """A sentence on each file in a folder that has another checksum than `expected` says."""
    for name, digest in expected.items():
        if checksum(folder / name) != digest:
            yield f"{folder / name} does not have the checksum that it was written with"


def _read_seal(seal: Path) -> tuple[dict[str, Any], dict[str, int], dict[str, str]]:
    """The facts, the sizes and the checksums of a seal."""
    facts = json.loads(seal.read_text(encoding="utf-8"))
    if not isinstance(facts, dict) or not isinstance(files := facts.pop("files", None), dict):
        raise ValueError(f"{seal.name} lists no files")
    if not isinstance(digests := facts.pop("digests", {}), dict) or digests.keys() - files.keys():
        raise ValueError(f"{seal.name} has checksums of files that it does not list")
    if outside := [name for name in files if name.startswith("/") or ".." in name.split("/")]:
        raise ValueError(f"{seal.name} lists {outside[0]!r}, which is not in its folder")
    return facts, files, digests
