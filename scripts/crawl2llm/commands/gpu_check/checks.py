"""The table of checks, in the order in which they run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crawl2llm.commands.gpu_check.lines import Line

PACKAGE = "crawl2llm.commands.gpu_check"


@dataclass(frozen=True)
class Check:
    """module.function takes a Place and yields lines. seconds: after which it hangs; dies: it ends by killing its processes."""

    what: str
    function: str
    seconds: int
    dies: bool = False
    before: str = ""  # the check that has to run before


CHECKS = {
    "machine": Check("GPUs, driver, versions, MIG slices, /dev/shm", "machine.check", 60),
    "products": Check("matrix products in bf16 and fp8 against the data sheet", "speed.check_products", 60),
    "memory": Check("copies in the GPU's memory against the data sheet", "speed.check_memory", 60),
    "links": Check("all-reduce within nodes and between them, each link, and NCCL's way", "links.check", 120),
    "folder": Check("writing and reading the folder of checkpoints", "machine.check_folder", 180),
    "attention": Check("variable-length attention against attention document by document", "attention.check", 90),
    "numerics": Check(
        "steps under every stage, optimiser and precision against fp32 on the CPU", "numerics.check", 240
    ),
    "steps": Check("1B at several settings: tokens/s, MFU, memory, waits", "steps.check", 420),
    "peers": Check("nanoGPT and torchtitan beside this engine, if copies are given", "peers.check", 600),
    "sampling": Check("tokens that the 1B draws in a second", "sampling.check", 120),
    "save": Check("an engine saves, and its process is killed", "resume.save_and_die", 120, dies=True),
    "load": Check(
        "the next process loads and goes on with the same losses", "resume.load_and_go_on", 120, before="save"
    ),
}


def function_of(check: Check) -> Callable[[Any], Iterator[Line]]:
    """What runs the check."""
    module, name = check.function.split(".")
    run: Callable[[Any], Iterator[Line]] = getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)
    return run
