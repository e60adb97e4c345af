"""Where a check runs: its process among those of all GPUs, the sizes, and where files may be."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.training import gpus


@dataclass(frozen=True)
class Place:
    """One process of a check. tiny: sizes for a CPU; folder: whose speed counts; scratch: of this run alone; peers: copies of their
    repositories by name.
    """

    device: torch.device
    tiny: bool
    folder: Path
    scratch: Path
    peers: dict[str, Path] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU is checked."""
        return self.device.type == "cuda"

    @property
    def processes(self) -> int:
        """How many processes there are, one for each GPU."""
        return dist.get_world_size()

    @property
    def processes_here(self) -> int:
        """How many of them are on each node; neighbouring ranks share one."""
        return int(os.environ["LOCAL_WORLD_SIZE"])

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self.processes // self.processes_here

    @property
    def name(self) -> str:
        """What a straggler is called: its GPU's uuid, on a CPU its rank; with its node if there are several."""
        name = uuid_of(self.device) if self.on_gpu else f"rank {dist.get_rank()}"
        return f"{name} on {node_name()}" if self.nodes > 1 else name

    @property
    def gpu(self) -> gpus.Gpu | None:
        """The kind of GPU, if it is known."""
        return gpus.find(torch.cuda.get_device_name(self.device)) if self.on_gpu else None

    @property
    def sheet(self) -> gpus.Kind | None:
        """What its data sheet says."""
        return gpus.KINDS.get(self.gpu.name) if self.gpu else None

    def wait(self) -> None:
        """Wait until the GPU has done all."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def gather(self, value: Any) -> list[Any]:
        """The value of every process, in their order. A collective call."""
        values: list[Any] = [None] * self.processes
        dist.all_gather_object(values, value, group=host_group())
        return values


def node_name() -> str:
    """This node, as SLURM calls it, else by its host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


_groups: list[Any] = []


def host_group() -> Any:
    """The group of all processes on the CPU: what is gathered there leaves the GPUs alone."""
    if not _groups:
        _groups.append(dist.new_group(backend="gloo") if dist.get_backend() != "gloo" else dist.group.WORLD)
    return _groups[0]


def uuid_of(device: torch.device) -> str:
    """A GPU's uuid as nvidia-smi writes it."""
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
