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
from crawl2llm.core.atomic_folder import CHECKPOINT, PATIENCE, read_sealed_facts, seal_folder, sync_folder
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import canonical_json, digest, sync_to_disk
from crawl2llm.training import checkpoint_integrity

FACTS = CHECKPOINT
REPLACED_SUFFIX = ".replaced"  # at the end of the name of a checkpoint that another one of its step takes the place of
NAME = re.compile(r"step-(\d{6,})")


class CollectiveError(InputError):
    """An error that every process raises for the same reason, and process 0 alone reports."""


def raise_on_every_process(error: str) -> None:
    """Raise CollectiveError on every process where one of them has an error, with that of the first. A collective call."""
    errors: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(errors, (socket.gethostname(), error))
    for rank, (host, text) in enumerate(errors):
        if text:
            raise CollectiveError(f"process {rank} on {host}: {text}" if rank else text)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint on disk: `processes` is the world size that wrote it, `code` has the hashes of its modules,
    `settings` is a digest of the settings, with a number for each `auto`, and of the number of steps.

    `model/` in it has the model's configuration and tokenizer. `skipped` are the steps up to here whose update was left out
    (training/callbacks/skipped_steps.py). `changed` says where the run went on under other code (core/checkpoint_folders.py).
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
    # Sequences that were left out by going back, and what was thrown away (training/callbacks/roll_back.py).
    ahead: int = 0
    # Sequences of all steps up to here, those left out among them; None before it was written down.
    seen: int | None = None
    rolled: tuple[dict[str, Any], ...] = ()
    stale: int = 0  # validations since the best one
    stopped: int = 0  # this step, where the run ended early with it (training/callbacks/early_stop.py)
    begun: int = 0  # the step of another run's checkpoint that this run started from
    optimizer: str = ""  # whose state is in it; checkpoints from before it was written down do not say
    # Of fp16 (training/loss_scale.py): the scale, updates that count toward its doubling, and updates that were left out for it.
    loss_scale: float | None = None
    steady: int = 0
    overflows: int = 0
    before: float | None = None  # of a fine-tuning: the held-out loss before its first step


def complete_checkpoints(folder: Path) -> list[Checkpoint]:
    """The complete checkpoints in a run's folder, oldest first; a damaged one is named in the log and left out."""
    checkpoints = [
        candidate for path in folder.glob("step-*") if NAME.fullmatch(path.name) and (candidate := read(path))
    ]
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.step)


def read(path: Path) -> Checkpoint | None:
    """The checkpoint in a folder; None, and a line in the log, for one that is not complete."""
    try:
        facts = read_sealed_facts(path, FACTS)
        return Checkpoint(
            path=path, **{**facts, "skipped": tuple(facts["skipped"]), "changed": tuple(facts["changed"])}
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s is not used: %s", path, error)
        return None


def readable_checkpoints(folder: Path) -> list[Checkpoint]:
    """The complete checkpoints of a run, oldest first, without the newest ones that cannot be read, which are renamed. For process 0."""
    checkpoints = complete_checkpoints(folder)
    readable = list(checkpoints)
    while readable and (why := checkpoint_integrity.damage_text(readable[-1].path)):
        checkpoint_integrity.set_aside(readable.pop().path, why)
    if number := len(checkpoints) - len(readable):
        where = f"after step {readable[-1].step:,}" if readable else "from its beginning"
        log.warning("%d of %d checkpoints cannot be read: training goes on %s", number, len(checkpoints), where)
    return readable


def checkpoint_to_resume(folder: Path, code: dict[str, str], settings: str, steps: int) -> Checkpoint | None:
    """The newest complete checkpoint of a run of `steps` steps that is to be resumed under `code`, or None.

    One whose files cannot be read is left for the one before it (training/checkpoint_integrity.py).
    One of other code is resumed where the run is not finished, and `changed` says so. A finished run of other code is none of
    this code's work, and one that took `auto` for other values is another run: it is moved into a folder beside `folder`, and
    the run starts from the beginning.
    """
    checkpoints = readable_checkpoints(folder)
    if not checkpoints:
        return None
    last, modules = checkpoints[-1], checkpoint_folders.changed_modules(checkpoints[-1].code, code)
    if not modules:
        return last
    if last.step < steps and not last.stopped and last.settings == settings:
        return replace(
            last, code=code, changed=(*last.changed, checkpoint_folders.note_code_change(last.step, modules))
        )
    destination = folder.with_name(f"{folder.name}-{digest(canonical_json(last.code))[:8]}")
    move_run(folder, destination, last.path)
    why = "was finished" if last.settings == settings else "took `auto` for other values"
    log.warning(
        "this training %s under other code (%s), so it starts again from its first step; the earlier one is in %s",
        why, ", ".join(modules), destination,
    )  # fmt: skip
    return None


def move_run(folder: Path, destination: Path, last: Path) -> None:
    """Move a run out of its folder, its newest checkpoint last: after a kill in between, the next start continues with it."""
    destination.mkdir(exist_ok=True)
    stays = (LOG, checkpoint_folders.POINTER)
    paths = [path for path in folder.iterdir() if not path.name.startswith(".") and path.name not in stays]
    for path in sorted(paths, key=lambda path: path == last):
        target = destination / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.rename(target)


def remove_checkpoints_after(folder: Path, step: int) -> Checkpoint | None:
    """The complete checkpoint after `step`, once all later ones are removed; None, and nothing is removed, if there is none."""
    checkpoints = complete_checkpoints(folder)
    last_kept = next((checkpoint for checkpoint in checkpoints if checkpoint.step == step), None)
    for later in reversed(checkpoints if last_kept else []):
        if later.step > step:
            shutil.rmtree(later.path.rename(folder / f".{later.path.name}.old"))
    return last_kept


def agree_on_checkpoint(
    folder: Path, code: dict[str, str], settings: str, steps: int, device: torch.device
) -> Checkpoint | None:
    """The checkpoint to resume from: process 0 chooses, every process looks whether it can see it, and compares a part of its checksums.
    One that is damaged is left for the one before it. A collective call.

    Raises CollectiveError if a process cannot see it: the folder is not on a file system that all nodes share.
    """
    if dist.get_rank() == 0:
        repair_folder(folder)
    while True:
        box: list[Any] = [None]
        if dist.get_rank() == 0:
            box[0] = checkpoint_to_resume(folder, code, settings, steps)
        dist.broadcast_object_list(box, device=device)
        checkpoint: Checkpoint | None = box[0]
        if checkpoint is None:
            return None
        check_seen(checkpoint, device)
        if not (why := first_altered_file(checkpoint)):
            return checkpoint
        if dist.get_rank() == 0:
            checkpoint_integrity.set_aside(checkpoint.path, why)


def first_altered_file(checkpoint: Checkpoint) -> str:
    """Which file of a checkpoint does not have its checksum; "" if all have. Each process reads a part of them. A collective call.

    Raises CollectiveError for what the file system does not give.
    """
    fault = error = ""
    try:
        digests = atomic_folder.read_sealed_digests(checkpoint.path, FACTS)
        own_names = sorted(digests)[dist.get_rank() :: dist.get_world_size()]
        fault = next(atomic_folder.checksum_problems(checkpoint.path, {name: digests[name] for name in own_names}), "")
    except (OSError, ValueError) as failure:
        error = str(failure)
    raise_on_every_process(error)
    faults: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(faults, fault)
    return next(filter(None, faults), "")


def check_digests(checkpoint: Checkpoint, folder: Path) -> None:
    """Raise CollectiveError for a checkpoint of which a file does not have its checksum. folder: the run's. A collective call."""
    if why := first_altered_file(checkpoint):
        raise CollectiveError(f"{why}: {checkpoint_integrity.remedy(checkpoint.path, folder)}")


def check_seen(checkpoint: Checkpoint, device: torch.device) -> None:
    """Raise CollectiveError if a process does not see a checkpoint. A collective call."""
    end = time.monotonic() + PATIENCE
    while not (seen := (checkpoint.path / FACTS).is_file()) and time.monotonic() < end:
        time.sleep(0.2)
    blind = torch.tensor(int(not seen), device=device)
    dist.all_reduce(blind)
    if blind:
        raise CollectiveError(
            f"{int(blind)} of {dist.get_world_size()} processes cannot see {checkpoint.path}: "
            "checkpoints/ must be on a file system that all nodes share"
        )


@contextlib.contextmanager
def detect_full_disk(folder: Path) -> Iterator[None]:
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


def repair_folder(folder: Path) -> None:
    """Remove what an interrupted run left half-written, and put back a checkpoint whose replacement never came."""
    for path in folder.glob(f".step-*{REPLACED_SUFFIX}"):
        if not (original := folder / path.name.removeprefix(".").removesuffix(REPLACED_SUFFIX)).exists():
            path.rename(original)
    for path in folder.glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class KeepPolicy:
    """Which checkpoints of a run stay: the `newest` ones, those of every n-th step (`interval`; 0: none), and the `best` by validation."""

    newest: int
    interval: int = 0
    best: bool = False
    # (every, window): those of every n-th step that a run may go back to while a window holds what came after them; (0, …): none
    points: tuple[int, int] = (0, 0)

    def checkpoints_to_keep(self, checkpoints: list[Checkpoint]) -> list[Checkpoint]:
        """Those of `checkpoints`, oldest first, that stay."""
        stay = {checkpoint.step for checkpoint in checkpoints[-self.newest :]}
        point_interval, window = self.points
        first = (checkpoints[-1].step - window) // point_interval * point_interval if point_interval else 0
        points = [
            checkpoint.step
            for checkpoint in checkpoints
            if point_interval and checkpoint.step % point_interval == 0 and checkpoint.step >= first
        ]
        stay |= {
            *points,
            *(checkpoint.step for checkpoint in checkpoints if self.interval and checkpoint.step % self.interval == 0),
        }
        if self.best:  # also as it was at what the run may go back to
            for end in [*points, checkpoints[-1].step]:
                scored = [
                    checkpoint
                    for checkpoint in checkpoints
                    if checkpoint.validation is not None and checkpoint.step <= end
                ]
                stay |= (
                    {min(scored, key=lambda checkpoint: (checkpoint.validation, checkpoint.step)).step}
                    if scored
                    else set()
                )
        return [checkpoint for checkpoint in checkpoints if checkpoint.step in stay]


def partial_folder(new_checkpoint: Checkpoint) -> Path:
    """The folder in which a checkpoint is written."""
    return new_checkpoint.path.with_name(f".{new_checkpoint.path.name}.partial")


def save(write: Callable[[Path], Any], new_checkpoint: Checkpoint, policy: KeepPolicy) -> None:
    """Save a checkpoint of all processes, as `new_checkpoint` describes it, and remove those that `policy` lets go. A collective call.

    write: writes all its files into a folder.
    """
    folder = partial_folder(new_checkpoint)
    write(folder)
    dist.barrier()
    # A file is forced to the disk by the node that wrote it, and that node knows its size.
    own_sizes = sync_folder(folder) if int(os.environ["LOCAL_RANK"]) == 0 else {}
    seen: list[dict[str, int]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(seen, own_sizes)
    files: dict[str, int] = {}
    for sizes in seen:
        files |= {path: max(size, files.get(path, 0)) for path, size in sizes.items()}
    # Each process reads a part of the files, most of which are in its node's memory still.
    names = sorted(files)[dist.get_rank() :: dist.get_world_size()]
    atomic_folder.wrong_files(folder, {name: files[name] for name in names}, PATIENCE)
    digests: list[dict[str, str]] = [{} for _ in seen]
    dist.all_gather_object(digests, atomic_folder.file_checksums(folder, names))
    if dist.get_rank() == 0:
        seal_and_prune(new_checkpoint, policy, files, {name: mark for part in digests for name, mark in part.items()})
    dist.barrier()


def seal_and_prune(
    new_checkpoint: Checkpoint, policy: KeepPolicy, files: dict[str, int], digests: dict[str, str] | None = None
) -> None:
    """Make a checkpoint whole whose files, with these sizes and checksums, are on the disk, and remove those that `policy` lets go.

    For process 0.
    """
    folder, unsealed = new_checkpoint.path.parent, partial_folder(new_checkpoint)
    facts = {name: value for name, value in asdict(new_checkpoint).items() if name != "path"}
    seal_folder(unsealed, FACTS, facts, files, digests)
    # A run that went back writes a checkpoint of the same step.
    replaced = folder / f".{new_checkpoint.path.name}{REPLACED_SUFFIX}"
    if new_checkpoint.path.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        new_checkpoint.path.rename(replaced)
    unsealed.rename(new_checkpoint.path)
    sync_to_disk(folder)
    shutil.rmtree(replaced, ignore_errors=True)
    checkpoints = complete_checkpoints(folder)
    stay = policy.checkpoints_to_keep(checkpoints)
    for old in (checkpoint for checkpoint in checkpoints if checkpoint not in stay):
        # Renamed first: a folder that is half removed would look damaged.
        shutil.rmtree(old.path.rename(folder / f".{old.path.name}.old"))
