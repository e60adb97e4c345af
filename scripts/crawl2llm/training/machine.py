"""What a training ran on, for its record: devices, processes, nodes."""

from __future__ import annotations

import os
import resource
import socket
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.core.console import log
from crawl2llm.core.record import processor_name
from crawl2llm.training.memory import format_bytes


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Devices by name, processes and nodes of this training. A collective call.

    What was measured is in the log: a record is the same whenever the same machine makes the same result.
    """
    cuda = device.type == "cuda"
    own_facts = {
        "name": torch.cuda.get_device_name() if cuda else processor_name(),
        "node": socket.gethostname(),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # kB on Linux, getrusage(2)
        "peak_gpu_memory_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
    }
    all_facts: list[dict[str, Any]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(all_facts, own_facts)
    for key, where in (("peak_memory_bytes", "of a process"), ("peak_gpu_memory_bytes", "of a GPU")):
        if os.environ["RANK"] == "0" and (peak := max(facts[key] for facts in all_facts)):
            log.info("peak memory %s: %s", where, format_bytes(peak))
    devices = Counter(facts["name"] for facts in all_facts)
    return {
        "device": device.type,
        "devices": dict(sorted(devices.items())),
        "processes": len(all_facts),
        "nodes": len({facts["node"] for facts in all_facts}),
    }
