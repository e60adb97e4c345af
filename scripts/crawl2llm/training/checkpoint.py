"""Checkpoints of a run, each complete or absent, in `checkpoints/<digest of settings and inputs>/step-000100/`.

All processes save under a temporary name; after the last barrier process 0 seals the folder (core/atomic_folder.py)
and renames it. So a folder with a final name is whole, and a run resumes from the newest. Process 0 alone lists the
checkpoints and tells the others: on NFS a node may see a listing from before.
What is in them is the engine's: safetensors keyed by parameter name, or DeepSpeed's pickles, read with weights_only.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.chain.command_line import LOG
from crawl2llm.core import atomic_folder, checkpoint_folders
from crawl2llm.core.atomic_folder import CHECKPOINT, PATIENCE, opened, seal, synced
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical, digest, sync
from crawl2llm.training import checkpoint_integrity

FACTS = CHECKPOINT
REPLACED = ".replaced"  # at the end of the name of a checkpoint that another one of its step takes the place of
NAME = re.compile(r"step-(\d{6,})")


class Told(InputError):
    """An error that every process raises for the same reason, and process 0 alone reports."""


def tell(error: str) -> None:
    """Raise Told on every process where one of them has an error, with that of the first. A collective call."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, (socket.gethostname(), error))
    for rank, (host, text) in enumerate(found):
        if text:
            raise Told(f"process {rank} on {host}: {text}" if rank else text)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint on disk: `processes` is the world size that wrote it, `code` has the hashes of its modules,
    `settings` is a digest of the settings, with a number for each `auto`, and of the number of steps.

    `model/` in it has the model's configuration and tokenizer. `skipped` are the steps up to here whose update was left out
    (training/skips.py). `changed` says where the run went on under other code (core/checkpoint_folders.py).
    """

    path: Path
    step: int
    processes: int
    zero_stage: int
    settings: str
    code: dict[str, str]
    skipped: tuple[int, ...] = ()
    changed: tuple[dict[str, Any], ...] = ()
    engine: str = "deepspeed"  # what wrote it; checkpoints from before there were two do not say
    validation: float | None = None  # loss of a validation after this very step
    lowest: float | None = None  # of all validations of the run up to here
    recent: tuple[tuple[float, float], ...] = ()  # loss and norm of the last steps, where spikes are looked for
    # Sequences that were left out by going back, and what was thrown away (training/rollback.py).
    ahead: int = 0
    # Sequences of all steps up to here, those left out among them; None before it was written down.
    seen: int | None = None
    rolled: tuple[dict[str, Any], ...] = ()
    stale: int = 0  # validations since the best one
    stopped: int = 0  # this step, where the run ended early with it (training/early_stopping.py)
    begun: int = 0  # the step of another run's checkpoint that this run started from
    optimizer: str = ""  # whose state is in it; checkpoints from before it was written down do not say
    # Of fp16 (training/loss_scale.py): the scale, updates that count toward its doubling, and updates that were left out for it.
    loss_scale: float | None = None
    steady: int = 0
    overflows: int = 0
    before: float | None = None  # of a fine-tuning: the held-out loss before its first step


def complete(folder: Path) -> list[Checkpoint]:
    """The complete checkpoints in a run's folder, oldest first; a damaged one is named in the log and left out."""
    found = [made for path in folder.glob("step-*") if NAME.fullmatch(path.name) and (made := read(path))]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def read(path: Path) -> Checkpoint | None:
    """The checkpoint in a folder; None, and a line in the log, for one that is not complete."""
    try:
        facts = opened(path, FACTS)
        return Checkpoint(
            path=path, **{**facts, "skipped": tuple(facts["skipped"]), "changed": tuple(facts["changed"])}
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s is not used: %s", path, error)
        return None


def newest(folder: Path, code: dict[str, str], settings: str, steps: int) -> Checkpoint | None:
    """The newest complete checkpoint of a run of `steps` steps that is to be resumed under `code`, or None.

    One whose files cannot be read is left for the one before it (training/checkpoint_integrity.py).
    One of other code is resumed where the run is not finished, and `changed` says so. A finished run of other code is none of
    this code's work, and one that took `auto` for other values is another run: it is moved into a folder beside `folder`, and
    the run starts from the beginning.
    """
    found = checkpoint_integrity.sound(complete(folder))
    if not found:
        return None
    last, modules = found[-1], checkpoint_folders.changed(found[-1].code, code)
    if not modules:
        return last
    if last.step < steps and not last.stopped and last.settings == settings:
        return replace(last, code=code, changed=(*last.changed, checkpoint_folders.resumed(last.step, modules)))
    apart = folder.with_name(f"{folder.name}-{digest(canonical(last.code))[:8]}")
    move(folder, apart, last.path)
    why = "was finished" if last.settings == settings else "took `auto` for other values"
    log.warning(
        "this training %s under other code (%s), so it starts again from its first step; the earlier one is in %s",
        why, ", ".join(modules), apart,
    )  # fmt: skip
    return None


def move(folder: Path, apart: Path, last: Path) -> None:
    """Move a run out of its folder, its newest checkpoint last: after a kill in between, the next start continues with it."""
    apart.mkdir(exist_ok=True)
    stays = (LOG, checkpoint_folders.POINTER)
    paths = [path for path in folder.iterdir() if not path.name.startswith(".") and path.name not in stays]
    for path in sorted(paths, key=lambda path: path == last):
        target = apart / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.rename(target)


def only_until(folder: Path, step: int) -> Checkpoint | None:
    """The complete checkpoint after `step`, once all later ones are removed; None, and nothing is removed, where there is none."""
    found = complete(folder)
    wanted = next((one for one in found if one.step == step), None)
    for later in reversed(found if wanted else []):
        if later.step > step:
            shutil.rmtree(later.path.rename(folder / f".{later.path.name}.old"))
    return wanted


def agreed(folder: Path, code: dict[str, str], settings: str, steps: int, device: torch.device) -> Checkpoint | None:
    """The checkpoint to resume from: process 0 chooses, every process looks whether it can see it, and compares a part of its checksums.
    One that is damaged is left for the one before it. A collective call.

    Raises Told where a process cannot see it: the folder is not on a file system that all nodes share.
    """
    if dist.get_rank() == 0:
        clean(folder)
    while True:
        box: list[Any] = [None]
        if dist.get_rank() == 0:
            box[0] = newest(folder, code, settings, steps)
        dist.broadcast_object_list(box, device=device)
        found: Checkpoint | None = box[0]
        if found is None:
            return None
        check_seen(found, device)
        if not (why := first_altered_file(found)):
            return found
        if dist.get_rank() == 0:
            checkpoint_integrity.set_aside(found.path, why)


def first_altered_file(found: Checkpoint) -> str:
    """Which file of a checkpoint does not have its checksum; "" if all have. Each process reads a part of them. A collective call.

    Raises Told for what the file system does not give.
    """
    fault = error = ""
    try:
        held = atomic_folder.digests(found.path, FACTS)
        own = sorted(held)[dist.get_rank() :: dist.get_world_size()]
        fault = next(atomic_folder.altered(found.path, {name: held[name] for name in own}), "")
    except (OSError, ValueError) as failure:
        error = str(failure)
    tell(error)
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, fault)
    return next(filter(None, every), "")


def check_digests(found: Checkpoint, folder: Path) -> None:
    """Raise Told for a checkpoint of which a file does not have its checksum. folder: the run's. A collective call."""
    if why := first_altered_file(found):
        raise Told(f"{why}: {checkpoint_integrity.remedy(found.path, folder)}")


def check_seen(found: Checkpoint, device: torch.device) -> None:
    """Raise Told where a process does not see a checkpoint. A collective call."""
    end = time.monotonic() + PATIENCE
    while not (seen := (found.path / FACTS).is_file()) and time.monotonic() < end:
        time.sleep(0.2)
    blind = torch.tensor(int(not seen), device=device)
    dist.all_reduce(blind)
    if blind:
        raise Told(
            f"{int(blind)} of {dist.get_world_size()} processes cannot see {found.path}: "
            "checkpoints/ must be on a file system that all nodes share"
        )


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Give a full disk or quota its own error, OSError: torch and safetensors each have another for it."""
    try:
        yield
    except Exception as failure:
        probe = folder / ".space"
        try:
            probe.write_bytes(os.urandom(8 << 20))  # which no file system compresses
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from failure
        finally:
            probe.unlink(missing_ok=True)
        raise


def clean(folder: Path) -> None:
    """Remove what an interrupted run left half-written, and put back a checkpoint whose replacement never came."""
    for path in folder.glob(f".step-*{REPLACED}"):
        if not (there := folder / path.name.removeprefix(".").removesuffix(REPLACED)).exists():
            path.rename(there)
    for path in folder.glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class Kept:
    """Which checkpoints of a run stay: the `newest` ones, those of every n-th step (`every`; 0: none), and the `best` by validation."""

    newest: int
    every: int = 0
    best: bool = False
    # (every, window): those of every n-th step that a run may go back to while a window holds what came after them; (0, …): none
    points: tuple[int, int] = (0, 0)

    def of(self, found: list[Checkpoint]) -> list[Checkpoint]:
        """Those of `found`, oldest first, that stay."""
        stay = {one.step for one in found[-self.newest :]}
        every, window = self.points
        first = (found[-1].step - window) // every * every if every else 0
        points = [one.step for one in found if every and one.step % every == 0 and one.step >= first]
        stay |= {*points, *(one.step for one in found if self.every and one.step % self.every == 0)}
        if self.best:  # also as it was at what the run may go back to
            for end in [*points, found[-1].step]:
                scored = [one for one in found if one.validation is not None and one.step <= end]
                stay |= {min(scored, key=lambda one: (one.validation, one.step)).step} if scored else set()
        return [one for one in found if one.step in stay]


def partial(made: Checkpoint) -> Path:
    """The folder in which a checkpoint is written."""
    return made.path.with_name(f".{made.path.name}.partial")


def save(write: Callable[[Path], Any], made: Checkpoint, kept: Kept) -> None:
    """Save a checkpoint of all processes, as `made` describes it, and remove those that are not `kept`. A collective call.

    write: writes all its files into a folder.
    """
    folder = partial(made)
    write(folder)
    dist.barrier()
    # A file is forced to the disk by the node that wrote it, and that node knows its size.
    own = synced(folder) if int(os.environ["LOCAL_RANK"]) == 0 else {}
    seen: list[dict[str, int]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(seen, own)
    files: dict[str, int] = {}
    for sizes in seen:
        files |= {path: max(size, files.get(path, 0)) for path, size in sizes.items()}
    # Each process reads a part of the files, most of which are in its node's memory still.
    names = sorted(files)[dist.get_rank() :: dist.get_world_size()]
    atomic_folder.wrong(folder, {name: files[name] for name in names}, PATIENCE)
    digests: list[dict[str, str]] = [{} for _ in seen]
    dist.all_gather_object(digests, atomic_folder.checksums(folder, names))
    if dist.get_rank() == 0:
        finish(made, kept, files, {name: mark for part in digests for name, mark in part.items()})
    dist.barrier()


def finish(made: Checkpoint, kept: Kept, files: dict[str, int], digests: dict[str, str] | None = None) -> None:
    """Make a checkpoint whole whose files, with these sizes and checksums, are on the disk, and remove those that are not `kept`.

    For process 0.
    """
    folder, written = made.path.parent, partial(made)
    facts = {name: value for name, value in asdict(made).items() if name != "path"}
    seal(written, FACTS, facts, files, digests)
    replaced = folder / f".{made.path.name}{REPLACED}"  # a run that went back writes a checkpoint of the same step
    if made.path.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        made.path.rename(replaced)
    written.rename(made.path)
    sync(folder)
    shutil.rmtree(replaced, ignore_errors=True)
    found = complete(folder)
    stay = kept.of(found)
    for old in (one for one in found if one not in stay):
        # Renamed first: a folder that is half removed would look damaged.
        shutil.rmtree(old.path.rename(folder / f".{old.path.name}.old"))
