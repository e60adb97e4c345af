"""Folders that are complete or absent: a last small file, the seal, lists every file with its size.

It is written when all files are on the disk, so a folder without it, or with a file of another size, does not count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.workflow.manifest import sync, write_atomically

CHECKPOINT = "checkpoint.json"  # the seal of a training's checkpoint
PATIENCE = 60.0  # seconds for a file that another node wrote to show on this one: NFS keeps listings for up to 60 s


def synced(folder: Path) -> dict[str, int]:
    """Force everything below `folder` to the disk; each file's path below it → bytes."""
    sizes = {}
    for path in sorted(folder.rglob("*")):
        sync(path)
        if path.is_file():
            sizes[str(path.relative_to(folder))] = path.stat().st_size
    sync(folder)
    return sizes


def wrong(folder: Path, files: Mapping[str, int], patience: float = 0.0) -> list[str]:
    """The names in `files` that are missing or have another size, asked again for up to `patience` seconds."""
    end = time.monotonic() + patience
    while True:
        sizes = {name: (folder / name).stat().st_size if (folder / name).is_file() else None for name in files}
        found = [name for name, size in sizes.items() if size != files[name]]
        if not found or time.monotonic() > end:
            return found
        any(folder.iterdir())  # has NFS look again
        time.sleep(0.2)


def seal(folder: Path, name: str, facts: Mapping[str, Any], files: Mapping[str, int]) -> None:
    """Write the seal `name`: `facts`, and the files that `synced` returned, on every node that wrote any.

    Raises OSError where a file is not there with its size.
    """
    if missing := wrong(folder, files, PATIENCE):
        raise OSError(f"{folder}: {', '.join(missing)} cannot be seen with the size that it was written with")
    write_atomically(folder / name, json.dumps({**facts, "files": dict(files)}, indent=1) + "\n")
    sync(folder)


def opened(folder: Path, name: str) -> dict[str, Any]:
    """The facts of a sealed folder. Raises ValueError or OSError, which say why, where it is not complete."""
    facts = json.loads((folder / name).read_text(encoding="utf-8"))
    if not isinstance(facts, dict) or not isinstance(files := facts.pop("files", None), dict):
        raise ValueError(f"{name} lists no files")
    if bad := wrong(folder, files):
        raise ValueError(f"{', '.join(bad)} changed size or is missing")
    return facts
