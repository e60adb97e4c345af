"""Whether a training has room: by an estimate before it starts, and where memory runs out what it was doing, with changes that help."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from crawl2llm.core import free_memory
from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.training import memory
from crawl2llm.training.engine_settings import EngineSettings

LEAST_SHARE = 0.85  # of the estimate, which may be so far from the peak (tests/unit/training/test_peaks.py)
CPU_ALLOCATOR = "DefaultCPUAllocator"  # in torch's message where a CPU's memory is out: no class of its own


def estimate_memory(
    shape: memory.Shape, settings: EngineSettings, placement: memory.Placement, cuda: bool, where: str = memory.SECTION
) -> int:
    """The estimated memory of a process in bytes; 0 if another process of this node says so.

    Raises InputError, with what to change, if this node has too little memory for the run. where: the section of the config.
    """
    if os.environ["LOCAL_RANK"] != "0":
        return 0
    processes_here = int(os.environ["LOCAL_WORLD_SIZE"])
    if cuda:
        if settings.zero_stage < 3 and settings.engine == "deepspeed":
            # Elsewhere a process holds a block of the model.
            memory.check_host(shape.parameters, free_memory.available_bytes(), processes_here, where)
        if settings.engine == "deepspeed":
            memory.check_offload(shape, settings, placement, free_memory.available_bytes(), processes_here, where)
        free, _ = torch.cuda.mem_get_info()
        try:
            parts = memory.fitting_memory_parts(shape, settings, placement, free, 1, cuda=True, where=where)
        except InputError as error:  # not measured on GPUs, and one that is full says so in the first step
            log.warning("%s", error)
            return 0
    else:
        parts = memory.fitting_memory_parts(
            shape, settings, placement, free_memory.available_bytes(), processes_here, where=where
        )
    estimated = sum(parts.values())
    if os.environ["RANK"] == "0":
        log.info("memory of a process, estimated: %s (%s)", memory.format_bytes(estimated), memory.parts_text(parts))
    return estimated


@contextmanager
def explain_out_of_memory(
    task: str,
    shape: memory.Shape,
    settings: EngineSettings,
    placement: memory.Placement,
    cuda: bool,
    where: str = memory.SECTION,
) -> Iterator[None]:
    """Turns torch's error into InputError with what to change; task: of a run, in words. The rest as for `estimate_memory`."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and CPU_ALLOCATOR not in str(error):
            raise
        estimate = sum(memory.memory_parts(shape, settings, placement, cuda).values())
        changes = memory.changes_that_fit(shape, settings, placement, LEAST_SHARE * estimate, 1, cuda, where)
        message = str(error).strip().partition("\n")[0]
        raise InputError(
            f"memory ran out in {task} ({message}); estimated were {memory.format_bytes(estimate)} for each process: "
            f"{', or '.join(changes)}"
        ) from error
