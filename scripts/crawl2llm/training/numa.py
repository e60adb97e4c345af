"""Bind a process to the cores of its GPU's NUMA node: the memory that it touches first, and its copies to the GPU, then stay beside it.

The rule is that of torchrun's `--numa-binding=node` (torch.numa.binding in 2.13). The launcher here is not torchrun, the functions of that
module are private, and they refuse to work without the program numactl.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from crawl2llm.core.console import log

SYS = Path("/sys")


def parse_cpu_list(cpu_list: str) -> set[int]:
    """The numbers in a list of the kernel's: `0-3,8` → {0, 1, 2, 3, 8}; none in an empty one."""
    numbers: set[int] = set()
    for part in cpu_list.strip().split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1)) if first else set()
    return numbers


def cores_near(address: str, root: Path = SYS) -> set[int]:
    """The cores of the NUMA node of a PCI device (`0000:1b:00.0`); none if the kernel does not say, as in most virtual machines."""
    try:
        node = int((root / "bus/pci/devices" / address / "numa_node").read_text(encoding="utf-8"))
        if node < 0:
            return set()
        return parse_cpu_list((root / f"devices/system/node/node{node}/cpulist").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()


def address_of(device: torch.device) -> str:
    """The PCI address of a GPU, as the kernel writes it."""
    properties: Any = torch.cuda.get_device_properties(device)
    return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"


def bind_to_node(address: str, threads: int, root: Path = SYS) -> set[int]:
    """Let all threads of this process run on the cores beside a PCI device alone; returns these.

    Nothing happens, and the result is empty, where the kernel does not tell them, if they are all that this process has, and where
    it may use fewer of them than its `threads`. A thread with cores of its own keeps them.
    """
    allowed = os.sched_getaffinity(0)
    near = cores_near(address, root) & allowed
    if near == allowed or len(near) < threads:
        return set()
    for task in Path("/proc/self/task").iterdir():
        try:
            if os.sched_getaffinity(int(task.name)) == allowed:
                os.sched_setaffinity(int(task.name), near)
        except OSError:  # a thread that has just ended
            continue
    return near


def bind_to(device: torch.device, wanted: bool, threads: int) -> None:
    """Bind this process to the cores beside its GPU, where a person wants it (`numa_binding`) and it has one."""
    if not wanted or device.type != "cuda":
        return
    if near := bind_to_node(address_of(device), threads):
        log.info("bound to the %d cores of the NUMA node of %s", len(near), device)
