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


def field_readers(nvml: Any, handle: Any) -> dict[str, Callable[[], float]]:
    """How each of FIELDS is asked of one GPU."""
    return {
        "gpu_utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "gpu_memory_used_gib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30,
        "gpu_power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,  # mW
        "gpu_temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "gpu_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "gpu_ecc_errors": lambda: nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
        "gpu_throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    }


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
    readers = field_readers(nvml, handle)

    def read() -> dict[str, float]:
        values = {}
        for name, call in list(readers.items()):
            try:
                values[name] = float(call())
            except nvml.NVMLError:  # not every GPU counts ECC errors, not every container may ask
                del readers[name]
        return values

    return read
