"""Copy the token files to a node's own disk before training reads them in random order.

A shared file system serves a few large reads well and many small ones badly; $SLURM_TMPDIR (the Alliance) or another
node-local folder serves both.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from scripts.common.cli import InputError
from scripts.common.console import Progress, log, setup
from scripts.common.manifest import Manifest, digest

__tracked__ = False  # moves bytes, never decides: see scripts/common/fingerprint.py

BLOCK = 16 << 20
SPARE = 1 << 30  # bytes to leave free on the node's disk


def folder_of(given: str) -> Path:
    """The folder that `pretrain.train.stage_to` names, with the node's variables put in.

    Raises InputError where it names a variable that is not set on the node.
    """
    text = os.path.expandvars(given)
    if missing := re.search(r"\$\{?\w+\}?", text):
        raise InputError(
            f"pretrain.train.stage_to is {given!r}, and {missing[0]} is not set here: "
            "name a folder of the node's own disk, or leave it empty"
        )
    return Path(text)


def staged(manifests: Sequence[Path], given: str) -> list[Path]:
    """Copies of the manifests and their files below the folder `given`; the manifests themselves where it is empty.

    Any number of processes of a node may call it: the first copies, the others find the copies. Files that are there
    with their size are not copied again. If the disk is too small, training reads the files where they lie, with
    a warning.
    """
    if not given:
        return list(manifests)
    base = folder_of(given)
    content = [path.read_text(encoding="utf-8") for path in sorted(manifests)]
    target = base / "crawl2llm-tokens" / digest("\n".join(content))
    try:
        target.mkdir(parents=True, exist_ok=True)
        with (target / ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            return _copied(manifests, target)
    except OSError as error:
        log.warning("token files are read where they lie: %s", error)
        return list(manifests)


def _copied(manifests: Sequence[Path], target: Path) -> list[Path]:
    todo: list[tuple[Path, Path]] = []
    out = []
    ranks = {path: rank for rank, path in enumerate(sorted(manifests))}
    for path in manifests:
        copy = target / f"{ranks[path]:08d}"  # copies sort as the manifests do
        todo += [(path.parent / name, copy / name) for name in (*Manifest.read(path).files, path.name)]
        out.append(copy / path.name)
    todo = [(old, new) for old, new in todo if not new.exists() or new.stat().st_size != old.stat().st_size]
    size = sum(old.stat().st_size for old, _ in todo)
    free = shutil.disk_usage(target).free
    if todo and size + SPARE > free:
        raise OSError(f"they are {size / 1e9:.1f} GB, and {target} has {free / 1e9:.1f} GB free")
    if todo:
        if not log.handlers:  # not process 0
            setup("pretrain.train")
        log.info("copying %.2f GB of token files to %s", size / 1e9, target)
    progress = Progress(size >> 20, "MiB")
    for old, new in todo:
        new.parent.mkdir(parents=True, exist_ok=True)
        partial = new.with_name(f".{new.name}.partial")
        with old.open("rb") as reader, partial.open("wb") as writer:
            while block := reader.read(BLOCK):
                writer.write(block)
                progress.add(len(block) >> 20)
        partial.replace(new)
    return out
