"""The processes that train together: each one's device, the group that they meet in, and how long they wait for one another."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.core import devices
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.training import heartbeat

# How long a process waits for the others before it ends. While one works alone (copies token files to its node, converts
# or seals a checkpoint, writes the model), many terabytes may have to move. In a step no process has anything to do that
# takes minutes: one that is not there after this time (pretrain.train.step_timeout) will not come, and the GPUs wait for nothing.
ALONE = timedelta(hours=6)
LOOPBACK = "127.0.0.1"
READ = 10.0  # seconds for the other processes to read that their devices differ
_step = ALONE  # until begin_steps
_store: dist.Store | None = None  # where the processes of several nodes have met before their group


def choose_device(wanted: str, processes_here: int, where: str = "pretrain.train") -> torch.device:
    """The device of this process. Raises InputError, with the key below `where`, where the machine lacks what `wanted` asks for.

    `auto` on several nodes is a collective call: they have all GPUs or none, else every process raises an InputError that names the nodes.
    """
    if wanted == "auto" and int(os.environ["WORLD_SIZE"]) > processes_here:
        agree("cuda" if torch.cuda.device_count() else "cpu", where)
    return choose_device_alone(wanted, processes_here, where)


def choose_device_alone(wanted: str, processes_here: int, where: str) -> torch.device:
    """As `choose_device`, without asking other nodes: for work that one process does while the others wait for it."""
    found = torch.cuda.device_count()
    seen = f"{devices.VISIBLE}={os.environ.get(devices.VISIBLE)!r}"
    if wanted == "auto" and not found and os.environ["LOCAL_RANK"] == "0" and devices.visible() and (why := unseen()):
        log.warning("%s.device is 'auto', and the training is on the CPU: %s", where, why)
    if wanted == "cpu" or (wanted == "auto" and not found):
        return torch.device("cpu")
    if not found:
        raise InputError(
            f"{where}.device is 'cuda', but torch {torch.__version__} sees no CUDA device on {socket.gethostname()} "
            f"({'; '.join(filter(None, [seen, unseen()]))}); use 'cpu' or 'auto', or a GPU node"
        )
    if processes_here > found:
        raise InputError(
            f"{where}.processes is {processes_here}, more than the {found} CUDA devices of this node ({seen}; of MIG slices "
            "a process sees one)"
        )
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def unseen() -> str:
    """Why torch sees no GPU though the driver has any; "" where nothing is known to be wrong."""
    return devices.why_unseen(int((torch.version.cuda or "0").split(".")[0]))


def agree(kind: str, where: str) -> None:
    """Compare this process's kind of device, `cuda` or `cpu`, with that of all others, before they form a group: its backend depends on it.

    They meet at MASTER_ADDR and MASTER_PORT, and `start` goes on with that store. Raises InputError, on all of them, where they differ.
    """
    global _store
    _store, rank, world = next(dist.rendezvous("env://", timeout=ALONE))
    _store.set(f"device {rank}", f"{kind} {socket.gethostname()}")
    each = [value.decode().split(" ", 1) for value in _store.multi_get([f"device {other}" for other in range(world)])]
    hosts = {one: sorted({host for found, host in each if found == one}) for one in ("cuda", "cpu")}
    if not hosts["cuda"] or not hosts["cpu"]:
        return
    _store.add("read", 1)
    end = time.monotonic() + READ
    while rank == 0 and _store.add("read", 0) < world and time.monotonic() < end:
        time.sleep(0.05)  # the store ends with this process
    raise InputError(
        f"{where}.device is 'auto', and the nodes differ: torch sees no GPU on {', '.join(hosts['cpu'])}, and GPUs on "
        f"{', '.join(hosts['cuda'])}. Leave out the nodes without, mend them, or set {where}.device to cpu"
    )


def meet_on_loopback() -> dist.Store:
    """The store of processes that are all on this machine: process 0 listens on loopback alone, while torch's listens on every interface.

    Raises OSError if the port is taken.
    """
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listening: dict[str, Any] = {}
    if rank == 0:
        with socket.socket() as found:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((host, port))
            found.listen(world)
            listening = {"master_listen_fd": found.detach()}
    return dist.TCPStore(host, port, world, rank == 0, ALONE, **listening)


def start(name: str, device: torch.device, threads: int) -> None:
    """Join the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, deterministic on a CPU.

    name: the engine that will train.
    """
    from crawl2llm.training.engine import kind

    os.environ["DS_ACCELERATOR"] = device.type  # DeepSpeed's import warns without it, and transformers imports it too
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed|deepspeed")
    torch.set_num_threads(threads)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 - for debugging; costs time
    if not dist.is_initialized():
        met: dict[str, Any] = {}  # else by the environment, as torch reads it
        here = os.environ["WORLD_SIZE"] == os.environ.get("LOCAL_WORLD_SIZE") and os.environ["MASTER_ADDR"] == LOOPBACK
        store = meet_on_loopback() if _store is None and here else _store
        if store is not None:
            met = {"store": store, "rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        dist.init_process_group("gloo" if device.type == "cpu" else "nccl", timeout=ALONE, **met)
    kind(name).prepare(device)


def wait_at_most(time: timedelta) -> None:
    """Set how long collective calls wait from now on, in every group (as torchtitan does, utils.set_pg_timeouts)."""
    heartbeat.within(time.total_seconds())
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
