"""The processes that train together: each one's device, the group that they meet in, and how long they wait for one another."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import warnings
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from scripts.training import alive
from scripts.workflow.errors import InputError

# How long a process waits for the others before it ends. While one works alone (copies token files to its node, converts
# or seals a checkpoint, writes the model), many terabytes may have to move. In a step no process has anything to do that
# takes minutes: one that is not there after this time (pretrain.train.step_timeout) will not come, and the GPUs wait for nothing.
ALONE = timedelta(hours=6)
_step = ALONE  # until begin_steps


def choose_device(wanted: str, processes_here: int, where: str = "pretrain.train") -> torch.device:
    """The device of this process. Raises InputError, with the key below `where`, where the machine lacks what `wanted` asks for."""
    found = torch.cuda.device_count()
    if wanted == "cpu" or (wanted == "auto" and not found):
        return torch.device("cpu")
    if not found:
        raise InputError(
            f"{where}.device is 'cuda', but torch {torch.__version__} sees no CUDA device on {socket.gethostname()} "
            f"(CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')!r}); use 'cpu' or 'auto', or a GPU node"
        )
    if processes_here > found:
        raise InputError(f"{where}.processes is {processes_here}, more than the {found} CUDA devices of this node")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def start(name: str, device: torch.device, threads: int) -> None:
    """Join the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, deterministic on a CPU.

    name: the engine that will train.
    """
    from scripts.pretrain.engine import kind

    os.environ["DS_ACCELERATOR"] = device.type  # DeepSpeed's import warns without it, and transformers imports it too
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed|deepspeed")
    torch.set_num_threads(threads)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 - for debugging; costs time
    if not dist.is_initialized():
        dist.init_process_group("gloo" if device.type == "cpu" else "nccl", timeout=ALONE)
    kind(name).prepare(device)


def wait_at_most(time: timedelta) -> None:
    """Set how long collective calls wait from now on, in every group (as torchtitan does, utils.set_pg_timeouts)."""
    alive.within(time.total_seconds())
    for group in dist.distributed_c10d._world.pg_map:
        dist.distributed_c10d._set_pg_timeout(time, group)


def begin_steps(seconds: float) -> None:
    """From now on collective calls wait so long, but in `patience`."""
    global _step
    _step = timedelta(seconds=seconds)
    wait_at_most(_step)


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """A part of the training loop in which one process works alone and the others wait for it."""
    wait_at_most(ALONE)
    try:
        yield
    finally:
        wait_at_most(_step)


def stop(status: int) -> None:
    """Leave the process group together and end this process; the interpreter's own end sometimes aborts."""
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    logging.shutdown()
    os._exit(status)
