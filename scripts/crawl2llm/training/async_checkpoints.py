"""Checkpoints that are written beside the training: `async_checkpoints` of pretrain.train and finetune.train.

Each process copies what it has to write, trains on, and a thread writes the copy. No thread makes a collective call: each process leaves
a note in the checkpoint's folder when its files are on the disk, and process 0's thread seals the folder once it has all notes. So a
checkpoint is whole when all its files are, as any other. One is written at a time. Where the writing fails, the next step says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch.distributed as dist

from crawl2llm.core.manifest import checksum, sync_to_disk, write_atomically
from crawl2llm.training import checkpoint, group
from crawl2llm.training.checkpoint import Checkpoint, KeepPolicy

# Of a process, in the folder that is being written: its files with sizes and checksums, as JSON.
NOTE = ".written-{:05d}"
POLL_SECONDS = 0.05  # seconds between two looks for the others' notes

Write = Callable[[Path], list[str]]  # writes this process's files into a folder, and says their names


class AsyncWriter:
    """Writes the checkpoints of a run, one at a time. All processes call its methods together."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.thread = folder, ThreadPoolExecutor(1)
        self.writing: Future[None] | None = None

    def save(self, write: Write, new_checkpoint: Checkpoint, policy: KeepPolicy) -> None:
        """Begin to write a checkpoint, as `checkpoint.save` does. `wait` comes first, and then the copy that `write` writes.

        write: makes no collective call.
        """
        assert self.writing is None
        self.writing = self.thread.submit(_write_and_seal, write, new_checkpoint, policy)

    def raise_failure(self) -> None:
        """Raise what went wrong with the writing, once it has: OSError if the disk is full."""
        if self.writing and self.writing.done() and self.writing.exception():
            with checkpoint.detect_full_disk(self.folder):
                self.writing.result()

    def wait(self) -> None:
        """Wait until the checkpoint is whole, if one is being written; raises as `raise_failure`. A collective call."""
        if self.writing is None:
            return
        with group.long_waits():
            with checkpoint.detect_full_disk(self.folder):
                self.writing.result()
            self.writing = None
            dist.barrier()


def _write_and_seal(write: Write, new_checkpoint: Checkpoint, policy: KeepPolicy) -> None:
    """Write this process's files and its note; on process 0, wait for the notes of all and make the checkpoint whole."""
    partial = checkpoint.partial_folder(new_checkpoint)
    partial.mkdir(parents=True, exist_ok=True)
    own_files = {name: [(partial / name).stat().st_size, checksum(partial / name)] for name in write(partial)}
    sync_to_disk(partial)
    write_atomically(partial / NOTE.format(dist.get_rank()), json.dumps(own_files))
    if dist.get_rank():
        return
    noted_files: dict[str, list[Any]] = {}
    for rank in range(dist.get_world_size()):
        noted_files |= _wait_for_note(partial / NOTE.format(rank))
    for path in partial.glob(f"{NOTE[:9]}*"):
        path.unlink()
    files = {name: size for name, (size, _) in sorted(noted_files.items())}
    checkpoint.seal_and_prune(new_checkpoint, policy, files, {name: mark for name, (_, mark) in noted_files.items()})


def _wait_for_note(path: Path) -> dict[str, list[Any]]:
    """What a process wrote, once it has. Raises TimeoutError if it does not come."""
    end = time.monotonic() + group.LONGEST_WAIT.total_seconds()
    while time.monotonic() < end:
        any(path.parent.iterdir())  # has NFS look again
        try:
            files: dict[str, list[Any]] = json.loads(path.read_text())
        except FileNotFoundError:
            time.sleep(POLL_SECONDS)
            continue
        return files
    raise TimeoutError(f"{path} did not come: a process has not written its part of the checkpoint")
