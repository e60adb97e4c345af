"""Checkpoints of a run, each complete or absent, in `checkpoints/<digest of the fingerprint>/step-000100/`.

All processes save under a temporary name; after the last barrier process 0 seals the folder (scripts/common/sealed.py)
and renames it. So whatever bears a final name is whole, and a run resumes from the newest. Process 0 alone lists the
checkpoints and tells the others: on NFS a node may see a listing from before.
DeepSpeed's files are pickles: they are read with weights_only, which admits tensors and the few types listed here.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import io
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from scripts.common.cli import InputError
from scripts.common.console import log
from scripts.common.manifest import sync
from scripts.common.sealed import PATIENCE, opened, seal, synced

FACTS = "checkpoint.json"
NAME = re.compile(r"step-(\d{6,})")


class Told(InputError):
    """An error that every process raises for the same reason, and process 0 alone reports."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk: `processes` is the world size that wrote it, `tokens` a digest of its data.

    `skipped` are the steps up to here whose update was left out, since their loss or gradient was not finite.
    """

    path: Path
    step: int
    processes: int
    zero_stage: int
    tokens: str
    skipped: tuple[int, ...] = ()


def read_safely() -> None:
    """Have every torch.load of this process, DeepSpeed's included, refuse anything but tensors and known types."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    torch.serialization.add_safe_globals([DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address])


def complete(folder: Path) -> list[Checkpoint]:
    """The complete checkpoints in a run's folder, oldest first; a damaged one is named in the log and left out."""
    found = []
    for path in folder.glob("step-*"):
        if not NAME.fullmatch(path.name):
            continue
        try:
            facts = opened(path, FACTS)
            found.append(Checkpoint(path, **{**facts, "skipped": tuple(facts.get("skipped", ()))}))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is not used: %s", path, error)
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def newest(folder: Path, tokens: str) -> Checkpoint | None:
    """The newest complete checkpoint that was trained on these tokens, or None.

    One of other tokens (a source file was replaced since, under the same settings) is moved into a folder beside `folder`,
    named after its tokens: it stays, and the run starts anew.
    """
    found = complete(folder)
    for checkpoint in [one for one in found if one.tokens != tokens]:
        apart = folder.with_name(f"{folder.name}-{checkpoint.tokens[:8]}")
        apart.mkdir(exist_ok=True)
        shutil.rmtree(apart / checkpoint.path.name, ignore_errors=True)
        checkpoint.path.rename(apart / checkpoint.path.name)
        log.warning("%s was trained on other tokens: it is in %s now", checkpoint.path, apart)
    return next((one for one in reversed(found) if one.tokens == tokens), None)


def agreed(folder: Path, tokens: str, device: torch.device) -> Checkpoint | None:
    """The checkpoint to resume from: process 0 chooses, and every process looks whether it can see it. A collective call.

    Raises Told where a process cannot see it: the folder is not on a file system that all nodes share.
    """
    box: list[Any] = [None]
    if dist.get_rank() == 0:
        clean(folder)
        box[0] = newest(folder, tokens)
    dist.broadcast_object_list(box, device=device)
    (found,) = box
    if found is None:
        return None
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
    return found


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run's folder, so that two processes never train the same run; InputError where it is held."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder} is in use: this run is already being trained by another process") from None
        except OSError as error:  # a file system without locks
            log.warning("%s cannot be locked (%s): make sure that no other process trains this run", folder, error)
        yield


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
    """Remove what an interrupted run left half-written."""
    for path in folder.glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)


def save(engine: Any, folder: Path, step: int, tokens: str, zero_stage: int, skipped: Sequence[int], keep: int) -> None:
    """Save a checkpoint of all processes and remove all but the newest `keep`. A collective call."""
    name, rank = f"step-{step:06d}", dist.get_rank()
    partial = folder / f".{name}.partial"
    engine.save_checkpoint(str(folder), tag=partial.name, save_latest=False)
    dist.barrier()
    # A file is forced to the disk by the node that wrote it, and that node knows its size.
    own = synced(partial) if int(os.environ["LOCAL_RANK"]) == 0 else {}
    seen: list[dict[str, int]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(seen, own)
    if rank == 0:
        files: dict[str, int] = {}
        for sizes in seen:
            files |= {path: max(size, files.get(path, 0)) for path, size in sizes.items()}
        facts = {
            "step": step,
            "processes": dist.get_world_size(),
            "zero_stage": zero_stage,
            "tokens": tokens,
            "skipped": list(skipped),
        }
        seal(partial, FACTS, facts, files)
        shutil.rmtree(folder / name, ignore_errors=True)
        partial.rename(folder / name)
        sync(folder)
        for name in ("zero_to_fp32.py", "zero_to_torch.py", "latest_universal"):  # DeepSpeed's, of no use here
            (folder / name).unlink(missing_ok=True)
        for old in complete(folder)[:-keep]:  # renamed first: a folder that is half removed would be taken for damaged
            shutil.rmtree(old.path.rename(folder / f".{old.path.name}.old"))
    dist.barrier()


def universal(checkpoint: Checkpoint) -> Checkpoint:
    """A copy of the checkpoint that any number of processes can load, beside it. A collective call.

    Needed for ZeRO 1–3, whose files hold one part of the optimizer's state for each process. Peak memory of
    process 0: one parameter with its state, and the model's own file.
    """
    target = checkpoint.path.with_name(f".{checkpoint.path.name}.universal")
    if dist.get_rank() == 0:
        from deepspeed.checkpoint import ds_to_universal

        log.info("%s was saved by %d processes: converting", checkpoint.path, checkpoint.processes)
        shutil.rmtree(target, ignore_errors=True)
        options = argparse.Namespace(
            input_folder=str(checkpoint.path),
            output_folder=str(target),
            num_extract_workers=1,  # in this process, where torch.load is restricted
            num_merge_workers=1,
            keep_temp_folder=False,
            strict=True,
            inject_missing_state=checkpoint.zero_stage < 3,
        )
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            ds_to_universal.main(options)
    dist.barrier()
    return replace(checkpoint, path=target, processes=dist.get_world_size())


def load(engine: Any, checkpoint: Checkpoint) -> None:
    """Load the weights and the optimizer's state. A collective call."""
    path, _ = engine.load_checkpoint(str(checkpoint.path.parent), tag=checkpoint.path.name)
    if path is None:
        raise InputError(f"{checkpoint.path} could not be loaded; delete it to resume from the one before")
    dist.barrier()
    if dist.get_rank() == 0 and checkpoint.path.name.endswith(".universal"):
        shutil.rmtree(checkpoint.path, ignore_errors=True)
