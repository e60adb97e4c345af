"""Checkpoints of a run, each complete or absent, in `checkpoints/<digest of the fingerprint>/step-000100/`.

All processes save under a temporary name; after the last barrier process 0 writes `checkpoint.json` (files and their
sizes) and renames the folder. So whatever bears a final name is whole, and a run goes on from the newest.
DeepSpeed's files are pickles: they are read with weights_only, which admits tensors and the few types listed here.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from scripts.common.cli import InputError
from scripts.common.console import log
from scripts.common.manifest import write_atomically

FACTS = "checkpoint.json"
NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk: `processes` is the world size that wrote it, `tokens` a digest of its data."""

    path: Path
    step: int
    processes: int
    zero_stage: int
    tokens: str


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
            facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
            files = facts.pop("files")
            wrong = [name for name, size in files.items() if (path / name).stat().st_size != size]
            if wrong:
                raise ValueError(f"{', '.join(wrong)} changed size")
            found.append(Checkpoint(path=path, **facts))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is not used: %s", path, error)
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def newest(folder: Path, tokens: str) -> Checkpoint | None:
    """The newest complete checkpoint, or None; InputError where it was trained on other tokens."""
    found = complete(folder)
    if not found:
        return None
    if found[-1].tokens != tokens:
        raise InputError(
            f"{found[-1].path} was trained on other tokens than --tokens lists now; "
            f"delete {folder} to train from the start, or give the tokens it was trained on"
        )
    return found[-1]


def agreed(found: Checkpoint | None, device: torch.device) -> None:
    """Check that all processes found the same checkpoint. A collective call.

    Raises InputError where they do not: the folder is not on a file system that all nodes share.
    """
    step = found.step if found else 0
    span = torch.tensor([step, -step], device=device)
    dist.all_reduce(span, op=dist.ReduceOp.MAX)
    if span[0] != -span[1]:
        raise InputError(
            f"the newest checkpoint is of step {-int(span[1])} for one process and of step {int(span[0])} for another: "
            "checkpoints/ must be on a file system that all nodes share"
        )


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


def save(engine: Any, folder: Path, step: int, tokens: str, zero_stage: int, keep: int) -> None:
    """Save a checkpoint of all processes and remove all but the newest `keep`. A collective call."""
    name, rank = f"step-{step:06d}", dist.get_rank()
    partial = folder / f".{name}.partial"
    engine.save_checkpoint(str(folder), tag=partial.name, save_latest=False)
    if int(os.environ["LOCAL_RANK"]) == 0:
        for path in partial.iterdir():
            _sync(path)
    dist.barrier()
    if rank == 0:
        facts = {
            "step": step,
            "processes": dist.get_world_size(),
            "zero_stage": zero_stage,
            "tokens": tokens,
            "files": {path.name: path.stat().st_size for path in sorted(partial.iterdir())},
        }
        write_atomically(partial / FACTS, json.dumps(facts, indent=1) + "\n")
        shutil.rmtree(folder / name, ignore_errors=True)
        partial.rename(folder / name)
        _sync(folder)
        for name in ("zero_to_fp32.py", "zero_to_torch.py", "latest_universal"):  # DeepSpeed's, of no use here
            (folder / name).unlink(missing_ok=True)
        for old in complete(folder)[:-keep]:
            shutil.rmtree(old.path)
    dist.barrier()


def _sync(path: Path) -> None:
    """Force a file's bytes, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    return Checkpoint(target, checkpoint.step, dist.get_world_size(), checkpoint.zero_stage, checkpoint.tokens)


def load(engine: Any, checkpoint: Checkpoint) -> None:
    """Load the weights and the optimizer's state. A collective call."""
    path, _ = engine.load_checkpoint(str(checkpoint.path.parent), tag=checkpoint.path.name)
    if path is None:
        raise InputError(f"{checkpoint.path} could not be loaded; delete it to go on from the one before")
    dist.barrier()
    if dist.get_rank() == 0 and checkpoint.path.name.endswith(".universal"):
        shutil.rmtree(checkpoint.path, ignore_errors=True)
