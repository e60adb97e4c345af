"""What NVIDIA's management library (NVML) says of a process's GPU: use, memory, power, temperature, clock, errors, throttling.

By `nvidia-ml-py`; the calls are those of its module pynvml, and NVML's units are in docs.nvidia.com/deploy/nvml-api.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import torch

from crawl2llm.core.console import log

FIELDS = (
    "gpu_utilization_percent", "gpu_memory_used_gib", "gpu_power_watts", "gpu_temperature_celsius", "gpu_clock_mhz",
    "gpu_ecc_errors", "gpu_throttle_reasons",
)  # fmt: skip
# nvml.h, nvmlClocksEventReason*: what holds the clock below what was asked for. Idle, and a clock that a person has set, are no fault.
REASONS = {
    0x04: "power cap", 0x08: "hardware slowdown", 0x10: "sync boost", 0x20: "too hot (software)", 0x40: "too hot (hardware)",
    0x80: "power brake",
}  # fmt: skip


def throttle_reasons(mask: float) -> list[str]:
    """The names of the bits of `gpu_throttle_reasons`; [] where the clock is not held down."""
    return [name for bit, name in REASONS.items() if int(mask) & bit]


def read_field(nvml: Any, handle: Any, field: str) -> float:
    """One of FIELDS of one GPU. Raises nvml.NVMLError if the GPU does not have it, or it must not be read."""
    match field:
        case "gpu_utilization_percent":
            return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        case "gpu_memory_used_gib":
            return float(nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30)
        case "gpu_power_watts":
            return float(nvml.nvmlDeviceGetPowerUsage(handle) / 1000)  # mW
        case "gpu_temperature_celsius":
            return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        case "gpu_clock_mhz":
            return float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        case "gpu_ecc_errors":
            kind = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
            return float(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC))
        case "gpu_throttle_reasons":
            return float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    raise KeyError(field)


def gpu_reader(device: torch.device) -> Callable[[], dict[str, float]]:
    """A function that reads FIELDS of the GPU `device`; without what it cannot read, {} on a CPU or without NVML, which is logged once."""
    if device.type != "cuda":
        return dict
    try:
        import pynvml as nvml

        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    except Exception as error:  # no module, no driver, no right: a training must not end for it
        log.info("no figures of the GPU on %s (nvidia-ml-py): %s", socket.gethostname(), error)
        return dict
    readable = list(FIELDS)

    def read() -> dict[str, float]:
        values = {}
        for field in readable[:]:
            try:
                values[field] = read_field(nvml, handle, field)
            except nvml.NVMLError:  # not every GPU counts ECC errors, not every container may ask
                readable.remove(field)
        return values

    return read
