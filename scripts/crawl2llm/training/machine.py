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
from crawl2llm.core.record import processor
from crawl2llm.training.memory import gigabytes


def described(device: torch.device) -> dict[str, Any]:
    """Devices by name, processes and nodes of this training. A collective call.

    What was measured is in the log: a record is the same whenever the same machine makes the same result.
    """
    cuda = device.type == "cuda"
    own = {
        "name": torch.cuda.get_device_name() if cuda else processor(),
        "node": socket.gethostname(),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # kB on Linux, getrusage(2)
        "peak_gpu_memory_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
    }
    every: list[dict[str, Any]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(every, own)
    for key, where in (("peak_memory_bytes", "of a process"), ("peak_gpu_memory_bytes", "of a GPU")):
        if os.environ["RANK"] == "0" and (most := max(one[key] for one in every)):
            log.info("peak memory %s: %s", where, gigabytes(most))
    devices = Counter(one["name"] for one in every)
    return {
        "device": device.type,
        "devices": dict(sorted(devices.items())),
        "processes": len(every),
        "nodes": len({one["node"] for one in every}),
    }
