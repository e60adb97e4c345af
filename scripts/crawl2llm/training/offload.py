"""ZeRO-Offload and ZeRO-Infinity: what DeepSpeed keeps in the node's memory, or on its NVMe disk, in place of a GPU's.

Ren et al. 2021 (https://arxiv.org/abs/2101.06840) have the optimizer on the CPU, Rajbhandari et al. 2021
(https://arxiv.org/abs/2104.07857) parameters and NVMe too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from crawl2llm.core.errors import InputError

BUFFER = 100_000_000  # elements of a buffer of weights on their way to the disk: DeepSpeed's default
NONE, CPU, NVME = "none", "cpu", "nvme"
OPTIMIZER, PARAMETERS, PATH = "offload_optimizer", "offload_parameters", "offload_path"


def is_used(settings: Mapping[str, Any]) -> bool:
    """Whether anything is offloaded."""
    return any(settings.get(key, NONE) != NONE for key in (OPTIMIZER, PARAMETERS))


def deepspeed_sections(settings: Mapping[str, Any], cuda: bool, largest: int) -> dict[str, Any]:
    """DeepSpeed's `offload_optimizer` and `offload_param` of `zero_optimization`.

    cuda: memory can be page-locked for a GPU. largest: elements of the largest parameter, for which a buffer beside the disk has room.
    """
    sections = {}
    for key, name in ((OPTIMIZER, "offload_optimizer"), (PARAMETERS, "offload_param")):
        if (device := settings[key]) != NONE:
            sections[name] = {"device": device, "pin_memory": cuda}
            if device == NVME:
                sections[name]["nvme_path"] = settings[PATH]
                if key == PARAMETERS:
                    sections[name]["buffer_size"] = max(BUFFER, largest)
    return sections


def check_offload(settings: Mapping[str, Any], key: Callable[[str], str]) -> None:
    """InputError for an offload that cannot work. key: a key of the section as the config names it."""
    if not is_used(settings):
        return
    for name in (OPTIMIZER, PARAMETERS):
        if (device := settings[name]) == NONE:
            continue
        stated, zero = f"{key(name)} is {device}", settings["zero_stage"]
        if settings["engine"] != "deepspeed":
            raise InputError(
                f"{stated}, and {key('engine')} {settings['engine']}, which keeps all where it trains: set {key('engine')} to deepspeed, "
                f"or {key(name)} to none"
            )
        least = 3 if name == PARAMETERS or device == NVME else 1
        if zero < least:
            allowed = "3" if least == 3 else "1, 2 or 3"
            raise InputError(
                f"{stated}, which ZeRO does with {key('zero_stage')} {allowed}, and it is {zero}: set {key('zero_stage')} to {least}, or "
                f"{key(name)} to none"
            )
        if device == NVME and not settings.get(PATH):
            raise InputError(f"{stated}, and {key(PATH)} is not set: name a folder on the disk")
        if device == NVME and settings.get("ema"):
            raise InputError(
                f"{stated}, and {key('ema')} {settings['ema']}: the mean follows weights that are in memory; set {key('ema')} to null, or "
                f"{key(name)} to cpu"
            )
    if settings[PARAMETERS] != NONE and settings[OPTIMIZER] == NONE:
        raise InputError(
            f"{key(PARAMETERS)} is {settings[PARAMETERS]}, and {key(OPTIMIZER)} none: the optimizer takes more of a GPU than the weights "
            f"do; set {key(OPTIMIZER)} to cpu too"
        )
