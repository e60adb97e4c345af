"""Copy the token files to a node's own disk before training reads them in random order.

A shared file system serves a few large reads well and many small ones badly; $SLURM_TMPDIR (the Alliance) or another
node-local folder serves both.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import xxhash

from crawl2llm.core.console import Progress, log, set_up_logging
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import (
    Manifest,
    ManifestError,
    canonical_json,
    checksum,
    digest,
    sync_to_disk,
    write_atomically,
)

BLOCK = 16 << 20
SPARE = 1 << 30  # bytes to leave free on the node's disk


def folder_of(stage_to: str) -> Path:
    """The folder that `pretrain.train.stage_to` names, with the node's variables put in.

    Raises InputError if it names a variable that is not set on the node.
    """
    text = os.path.expandvars(stage_to)
    if missing := re.search(r"\$\{?\w+\}?", text):
        raise InputError(
            f"pretrain.train.stage_to is {stage_to!r}, and {missing[0]} is not set here: "
            "name a folder of the node's own disk, or leave it empty"
        )
    return Path(text)


def make_private(folder: Path) -> None:
    """Make a folder that no other user writes to or reads, or see that it is one.

    Raises PermissionError if it is a link or another user's, or open to others: in a shared folder anybody may have put it there.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise PermissionError(
            f"{folder} is not a folder of this user alone (owner {about.st_uid}, mode {stat.S_IMODE(about.st_mode):04o}): remove it"
        )


def stage_inputs(args: argparse.Namespace, stage_to: str) -> None:
    """Replace the manifests of tokens, packed windows and a mix among a training's arguments by those of copies, see `stage_tokens`."""
    for name in ("tokens", "packs", "mix"):
        if manifests := getattr(args, name):
            setattr(args, name, stage_tokens(manifests, stage_to))


def stage_tokens(manifests: Sequence[Path], stage_to: str) -> list[Path]:
    """Copies of the manifests and their files below the folder `stage_to`; the manifests themselves if it is empty.

    Any number of processes of a node may call it: the first copies, the others find the copies. A copy has its name once it is on the
    disk and its bytes had the checksum of the manifest. One that is there is read for its checksum, once as long as nobody writes to it,
    and copied again if it has another. The copies lie in a folder that only this user reads and writes. If the disk is too small,
    training reads the files where they lie, with a warning. Raises ManifestError if a file does not have its checksum.
    """
    if not stage_to:
        return list(manifests)
    base = folder_of(stage_to)
    private_folder = base / f"crawl2llm-tokens-{os.geteuid()}"
    content = [path.read_text(encoding="utf-8") for path in sorted(manifests)]
    target = private_folder / digest("\n".join(content))
    try:
        base.mkdir(parents=True, exist_ok=True)
        make_private(private_folder)
        target.mkdir(exist_ok=True)
        with open(os.open(target / ".lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            return _copy_tokens(manifests, target)
    except OSError as error:
        log.warning("token files are read where they lie: %s", error)
        return list(manifests)


def _copy_tokens(manifests: Sequence[Path], target: Path) -> list[Path]:
    todo: list[tuple[Path, Path, str]] = []
    copies = []
    ranks = {path: rank for rank, path in enumerate(sorted(manifests))}
    for path in manifests:
        copy = target / f"{ranks[path]:08d}"  # copies sort as the manifests do
        listed = Manifest.read_unchecked(
            path
        ).files  # no input of the training: the copies are, as the files are without them
        todo += [(path.parent / name, copy / name, listed[name]["xxh3"]) for name in listed]
        todo.append((path, copy / path.name, checksum(path)))
        copies.append(copy / path.name)
    checked = CheckedCopies(target)
    todo = [each for each in todo if not checked.has(*each[1:])]
    size = sum(old.stat().st_size for old, *_ in todo)
    free = shutil.disk_usage(target).free
    if todo and size + SPARE > free:
        raise OSError(f"they are {size / 1e9:.1f} GB, and {target} has {free / 1e9:.1f} GB free")
    if todo:
        if not log.handlers:  # not process 0
            set_up_logging("pretrain.train")
        log.info("copying %.2f GB of token files to %s", size / 1e9, target)
    progress = Progress(size >> 20, "MiB")
    for old, new, expected in todo:
        new.parent.mkdir(parents=True, exist_ok=True)
        partial = new.with_name(f".{new.name}.partial")
        state = xxhash.xxh3_128()
        with old.open("rb") as reader, partial.open("wb") as writer:
            while block := reader.read(BLOCK):
                writer.write(block)
                state.update(block)
                progress.add(len(block) >> 20)
        if expected != state.hexdigest():
            raise ManifestError(
                f"{old} does not have the checksum that its manifest says: remove the manifest and run again"
            )
        sync_to_disk(partial)  # before it has its name: a power cut leaves no file of the right size without its bytes
        partial.replace(new)
        checked.add(new, expected)
    checked.write()
    return copies


class CheckedCopies:
    """The copies in a folder whose bytes had their checksums, by size, times and inode as they were then.

    So a file is read for its checksum once, not by each process of a node. Nobody sets the time of a change of an inode: a file that was
    put in a copy's place, or written to, is read again.
    """

    def __init__(self, target: Path) -> None:
        self.target, self.path, self.changed = target, target / ".checked.json", False
        try:
            self.facts_by_name = dict(json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            self.facts_by_name = {}

    def _file_facts(self, path: Path, expected: str) -> list[int | str]:
        about = path.lstat()
        return [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev, expected]

    def has(self, path: Path, expected: str) -> bool:
        """Whether a copy is there with its checksum; one that is a link is not."""
        if path.is_symlink() or not path.is_file():
            return False
        if self.facts_by_name.get(str(path.relative_to(self.target))) == self._file_facts(path, expected):
            return True
        if checksum(path) != expected:
            log.warning("%s is not the copy that it should be: it is copied again", path)
            return False
        self.add(path, expected)
        return True

    def add(self, path: Path, expected: str) -> None:
        """Note a copy that has its checksum."""
        self.facts_by_name[str(path.relative_to(self.target))] = self._file_facts(path, expected)
        self.changed = True

    def write(self) -> None:
        """Keep what was found for the next process."""
        if self.changed:
            write_atomically(self.path, canonical_json(self.facts_by_name))
