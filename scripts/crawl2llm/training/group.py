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
LONGEST_WAIT = timedelta(hours=6)
LOOPBACK = "127.0.0.1"
READ_SECONDS = 10.0  # seconds for the other processes to read that their devices differ
_step_wait = LONGEST_WAIT  # until begin_steps
_store: dist.Store | None = None  # where the processes of several nodes have met before their group


def choose_device(setting: str, processes_here: int, where: str = "pretrain.train") -> torch.device:
    """The device of this process. Raises InputError, with the key below `where`, where the machine lacks what `setting` asks for.

    `auto` on several nodes is a collective call: they have all GPUs or none, else every process raises an InputError that names the nodes.
    """
    if setting == "auto" and int(os.environ["WORLD_SIZE"]) > processes_here:
        check_device_kinds("cuda" if torch.cuda.device_count() else "cpu", where)
    return choose_device_alone(setting, processes_here, where)


def choose_device_alone(setting: str, processes_here: int, where: str) -> torch.device:
    """As `choose_device`, without asking other nodes: for work that one process does while the others wait for it."""
    gpu_count = torch.cuda.device_count()
    seen = f"{devices.VISIBLE_VARIABLE}={os.environ.get(devices.VISIBLE_VARIABLE)!r}"
    if (
        setting == "auto"
        and not gpu_count
        and os.environ["LOCAL_RANK"] == "0"
        and devices.visible_gpus()
        and (why := why_unseen())
    ):
        log.warning("%s.device is 'auto', and the training is on the CPU: %s", where, why)
    if setting == "cpu" or (setting == "auto" and not gpu_count):
        return torch.device("cpu")
    if not gpu_count:
        raise InputError(
            f"{where}.device is 'cuda', but torch {torch.__version__} sees no CUDA device on {socket.gethostname()} "
            f"({'; '.join(filter(None, [seen, why_unseen()]))}); use 'cpu' or 'auto', or a GPU node"
        )
    if processes_here > gpu_count:
        raise InputError(
            f"{where}.processes is {processes_here}, more than the {gpu_count} CUDA devices of this node ({seen}; of MIG slices "
            "a process sees one)"
        )
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def why_unseen() -> str:
    """Why torch sees no GPU though the driver has any; "" where nothing is known to be wrong."""
    return devices.why_gpus_unseen(int((torch.version.cuda or "0").split(".")[0]))


def check_device_kinds(kind: str, where: str) -> None:
    """Compare this process's kind of device, `cuda` or `cpu`, with that of all others, before they form a group: its backend depends on it.

    They meet at MASTER_ADDR and MASTER_PORT, and `join_group` goes on with that store. Raises InputError, on all of them, where they
    differ.
    """
    global _store
    _store, rank, world = next(dist.rendezvous("env://", timeout=LONGEST_WAIT))
    _store.set(f"device {rank}", f"{kind} {socket.gethostname()}")
    answers = [value.decode().split(" ", 1) for value in _store.multi_get([f"device {peer}" for peer in range(world)])]
    hosts = {
        device_kind: sorted({host for answer, host in answers if answer == device_kind})
        for device_kind in ("cuda", "cpu")
    }
    if not hosts["cuda"] or not hosts["cpu"]:
        return
    _store.add("read", 1)
    end = time.monotonic() + READ_SECONDS
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
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(world)
            listening = {"master_listen_fd": listener.detach()}
    return dist.TCPStore(host, port, world, rank == 0, LONGEST_WAIT, **listening)


def join_group(device: torch.device, threads: int) -> None:
    """Join the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, deterministic on a CPU."""
    os.environ["DS_ACCELERATOR"] = device.type  # DeepSpeed's import warns without it, and transformers imports it too
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed|deepspeed")
    torch.set_num_threads(threads)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 - for debugging; costs time
    if not dist.is_initialized():
        store_options: dict[str, Any] = {}  # else by the environment, as torch reads it
        on_one_node = os.environ["WORLD_SIZE"] == os.environ.get("LOCAL_WORLD_SIZE")
        on_loopback = on_one_node and os.environ["MASTER_ADDR"] == LOOPBACK
        store = meet_on_loopback() if _store is None and on_loopback else _store
        if store is not None:
            store_options = {
                "store": store,
                "rank": int(os.environ["RANK"]),
                "world_size": int(os.environ["WORLD_SIZE"]),
            }
        dist.init_process_group("gloo" if device.type == "cpu" else "nccl", timeout=LONGEST_WAIT, **store_options)


def wait_at_most(time: timedelta) -> None:
    """Set how long collective calls wait from now on, in every group (as torchtitan does, utils.set_pg_timeouts)."""
    heartbeat.set_wait_limit(time.total_seconds())
    for group in dist.distributed_c10d._world.pg_map:
        dist.distributed_c10d._set_pg_timeout(time, group)


def begin_steps(seconds: float) -> None:
    """From now on collective calls wait so long, but in `long_waits`."""
    global _step_wait
    _step_wait = timedelta(seconds=seconds)
    wait_at_most(_step_wait)


@contextlib.contextmanager
def long_waits() -> Iterator[None]:
    """A part of the training loop in which one process works alone and the others wait for it."""
    wait_at_most(LONGEST_WAIT)
    try:
        yield
    finally:
        wait_at_most(_step_wait)


def leave_and_exit(status: int) -> None:
    """Leave the process group together and end this process; the interpreter's own end sometimes aborts."""
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    logging.shutdown()
    os._exit(status)
