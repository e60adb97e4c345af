"""What all trainings share: where their checkpoints lie, and which code took part.

The folder of checkpoints is named by what decides the weights, settings and inputs, and not by the code: a run that is not
finished continues after a correction of the program. Each checkpoint has the hashes of the code that wrote it, so the log can say so.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from crawl2llm.core.atomic_folder import CHECKPOINT
from crawl2llm.core.console import log
from crawl2llm.core.manifest import Manifest, ManifestError, canonical_json, digest, pretty_json, write_atomically

LOCK = ".lock"
POINTER = "training.json"  # beside the checkpoints: the training's manifest and fingerprint, and of others with the same weights
POLL_SECONDS = 2.0  # seconds between two looks at a folder that another training holds


class FolderInUseError(ManifestError):
    """Another process trains this run."""


def training_folder(
    checkpoints: Path,
    settings: dict[str, Any],
    inputs: Mapping[str, Manifest],
    files: Mapping[str, str] | None = None,
    task: str = "",
) -> Path:
    """The folder of a training's checkpoints below `checkpoints`.

    inputs: the manifests that it reads, by key. files: the digests of other files that its settings name. task: the model's
    name; two models of the same settings are two trainings.
    """
    parts: list[Any] = [settings, {key: manifest.files for key, manifest in inputs.items()}]
    return checkpoints / digest(canonical_json([*parts, *filter(None, (dict(files or {}), task))]))


@contextlib.contextmanager
def hold_folder(place: Path) -> Iterator[None]:
    """Hold a folder of checkpoints, so that two processes never train the same run. Raises Held."""
    with _lock_folder(place):
        yield


@contextlib.contextmanager
def claim_folder(place: Path, manifest: Path, fingerprint: str) -> Iterator[None]:
    """Hold a folder of checkpoints for a training that begins, and write beside them that they are its own.

    Two variants whose texts come out the same, as where a filter drops nothing, have one folder: the second waits for the first, and has
    nothing left to do. Raises Held if the same training runs already. fingerprint: its digest.
    """
    alone = 0  # looks in a row at which nobody else was said to hold it: who has just taken it says so in a moment
    while True:
        try:
            handle = _lock_folder(place)
            break
        except FolderInUseError:
            holder = _read_pointer(place).get("manifest")
            held_by_other = holder is not None and holder != str(manifest)
            if not held_by_other and alone == 2:
                raise
            if held_by_other and not alone:
                log.info("%s trains the same model on the same text: waiting for it", holder)
            alone = -1 if held_by_other else alone + 1
            time.sleep(POLL_SECONDS)
    with handle:
        write_pointer(place, manifest, fingerprint)
        yield


def _lock_folder(place: Path) -> IO[str]:
    """The file whose lock is that of a folder, locked. Raises Held."""
    while True:
        place.mkdir(parents=True, exist_ok=True)
        handle = (place / LOCK).open("w")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise FolderInUseError(f"{place} is in use: this run is already being trained by another process") from None
        except OSError as error:  # a file system without locks
            log.warning("%s cannot be locked (%s): make sure that no other process trains this run", place, error)
            return handle
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle.fileno()), (place / LOCK).stat()):
                return handle
        handle.close()  # another process has removed this one: a third would lock a new one


def remove_if_empty(place: Path) -> None:
    """Remove a folder of checkpoints in which nothing but the lock is left."""
    if {path.name for path in place.iterdir()} <= {LOCK}:
        (place / LOCK).unlink(missing_ok=True)
        place.rmdir()


def write_pointer(place: Path, manifest: Path, fingerprint: str) -> None:
    """Write beside the checkpoints of a training that begins which training they belong to. fingerprint: its digest.

    What other trainings have said there stays: those of another variant may have the same settings and files.
    """
    other_trainings = {path: mark for path, mark in _pointer_entries(_read_pointer(place)) if path != str(manifest)}
    write_atomically(
        place / POINTER, pretty_json({"manifest": str(manifest), "fingerprint": fingerprint, "others": other_trainings})
    )


def _read_pointer(place: Path) -> dict[str, Any]:
    """What is written beside checkpoints of whose they are; {} where nothing can be read."""
    try:
        content = json.loads((place / POINTER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _pointer_entries(pointer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path of the manifest, digest of the fingerprint) of each training, the newest first."""
    if {"manifest", "fingerprint"} <= pointer.keys():
        yield str(pointer["manifest"]), str(pointer["fingerprint"])
    other_trainings = pointer.get("others")
    yield from (
        (str(path), str(mark)) for path, mark in (other_trainings.items() if isinstance(other_trainings, dict) else ())
    )


def trainings_below(checkpoints: Path) -> Iterator[tuple[Path, Path, str]]:
    """(folder of checkpoints, path of the manifest, digest of the fingerprint) of every training that began below `checkpoints`."""
    for path in sorted(checkpoints.glob(f"*/{POINTER}")):
        for manifest, mark in _pointer_entries(_read_pointer(path.parent)):
            yield path.parent, Path(manifest), mark


def replace_fingerprint(checkpoints: Path, manifest: Path, before: str, fingerprint: str) -> None:
    """Write beside the checkpoints of a training that its result is that of another fingerprint now. Both are digests."""
    for path in checkpoints.glob(f"*/{POINTER}"):
        pointer = _read_pointer(path.parent)
        marks = {
            place: fingerprint if (place, mark) == (str(manifest), before) else mark
            for place, mark in _pointer_entries(pointer)
        }
        if marks != dict(_pointer_entries(pointer)):
            mark = marks.pop(str(pointer["manifest"]))
            write_atomically(path, pretty_json({"manifest": pointer["manifest"], "fingerprint": mark, "others": marks}))


def changed_modules(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, list[str]]:
    """The modules that differ between two kinds of code, with both hashes; "" where one lacks it."""
    names = sorted(old.keys() | new.keys())
    return {name: [old.get(name, ""), new.get(name, "")] for name in names if old.get(name) != new.get(name)}


def note_code_change(step: int, modules: Mapping[str, list[str]]) -> dict[str, Any]:
    """What a manifest says of a training that continues under other code after `step`; it is logged too."""
    log.warning("continuing after step %s under other code: %s", f"{step:,}", ", ".join(modules))
    return {"step": step, "modules": dict(modules)}


def resume_line(checkpoint: Path, step: int, last: int) -> str:
    """What a log says where a training goes on, which the run's screen shows. checkpoint: the folder that it has read."""
    try:
        saved_at = datetime.fromtimestamp((checkpoint / CHECKPOINT).stat().st_mtime).astimezone()
    except OSError:
        return f"resuming after step {step:,} of {last:,} ({checkpoint})"
    day = "" if saved_at.date() == datetime.now().astimezone().date() else f"{saved_at:%Y-%m-%d} "
    return f"resuming after step {step:,} of {last:,}, checkpoint of {day}{saved_at:%H:%M} ({checkpoint})"


def code_change_notes(parts: list[dict[str, Any]]) -> list[str]:
    """Notes for the report on a training of several kinds of code; none if there was one."""
    return [
        f"After step {part['step']:,} it was trained with other code than before: {', '.join(part['modules'])}."
        for part in parts
    ]
