"""ZeRO-Offload and ZeRO-Infinity: what DeepSpeed keeps in the node's memory, or on its NVMe disk, in place of a GPU's.

Ren et al. 2021 (https://arxiv.org/abs/2101.06840) have the optimizer on the CPU, Rajbhandari et al. 2021
(https://arxiv.org/abs/2104.07857) parameters and NVMe too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training.engine_settings import EngineSettings

BUFFER = 100_000_000  # elements of a buffer of weights on their way to the disk: DeepSpeed's default
NONE, CPU, NVME = "none", "cpu", "nvme"
OPTIMIZER, PARAMETERS, PATH = "offload_optimizer", "offload_parameters", "offload_path"


def is_used(settings: EngineSettings) -> bool:
    """Whether anything is offloaded."""
    return settings.offload_optimizer != NONE or settings.offload_parameters != NONE


def deepspeed_sections(settings: EngineSettings, cuda: bool, largest: int) -> dict[str, Any]:
    """DeepSpeed's `offload_optimizer` and `offload_param` of `zero_optimization`.

    cuda: memory can be page-locked for a GPU. largest: elements of the largest parameter, for which a buffer beside the disk has room.
    """
    sections: dict[str, dict[str, Any]] = {}
    devices = {"offload_optimizer": settings.offload_optimizer, "offload_param": settings.offload_parameters}
    for name, device in devices.items():
        if device != NONE:
            sections[name] = {"device": device, "pin_memory": cuda}
            if device == NVME:
                sections[name]["nvme_path"] = settings.offload_path
                if name == "offload_param":
                    sections[name]["buffer_size"] = max(BUFFER, largest)
    return sections


def check_offload(settings: EngineSettings, key: Callable[[str], str]) -> None:
    """InputError for an offload that cannot work. key: a key of the section as the config names it."""
    if not is_used(settings):
        return
    for name, device in ((OPTIMIZER, settings.offload_optimizer), (PARAMETERS, settings.offload_parameters)):
        if device == NONE:
            continue
        stated, zero = f"{key(name)} is {device}", settings.zero_stage
        if settings.engine != "deepspeed":
            raise InputError(
                f"{stated}, and {key('engine')} {settings.engine}, which keeps all where it trains: set {key('engine')} to deepspeed, "
                f"or {key(name)} to none"
            )
        least = 3 if name == PARAMETERS or device == NVME else 1
        if zero < least:
            allowed = "3" if least == 3 else "1, 2 or 3"
            raise InputError(
                f"{stated}, which ZeRO does with {key('zero_stage')} {allowed}, and it is {zero}: set {key('zero_stage')} to {least}, or "
                f"{key(name)} to none"
            )
        if device == NVME and not settings.offload_path:
            raise InputError(f"{stated}, and {key(PATH)} is not set: name a folder on the disk")
        if device == NVME and settings.ema:
            raise InputError(
                f"{stated}, and {key('ema')} {settings.ema}: the mean follows weights that are in memory; set {key('ema')} to null, or "
                f"{key(name)} to cpu"
            )
    if settings.offload_parameters != NONE and settings.offload_optimizer == NONE:
        raise InputError(
            f"{key(PARAMETERS)} is {settings.offload_parameters}, and {key(OPTIMIZER)} none: the optimizer takes more of a GPU than the "
            f"weights do; set {key(OPTIMIZER)} to cpu too"
        )
