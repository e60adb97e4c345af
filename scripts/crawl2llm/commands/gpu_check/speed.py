"""How fast each GPU multiplies and copies, beside its data sheet and the other GPUs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from crawl2llm.commands.gpu_check.lines import SKIPPED, SLOW, Line, at_least, slow_places
from crawl2llm.commands.gpu_check.place import Place

# What a sound GPU reaches at least, as shares of the data sheet. An H100 SXM was measured at 0.81, 0.90 (docs/commands/gpu-check.md).
PRODUCT_SHARE, FP8_SHARE, COPY_SHARE, LINK_SHARE = 0.70, 0.55, 0.80, 0.60
# A GPU below this share of the median is a straggler: at once, and after seconds of load, when chips of one kind differ more by the clock
# that their power allows. A process on a CPU is named, and not judged: others run there too.
ALIKE, ALIKE_WHEN_WARM, ALIKE_ON_CPU = 0.95, 0.9, 0.5
LOAD_SECONDS, TINY_LOAD_SECONDS = 8.0, 0.05


def median_seconds(place: Place, work: Callable[[], Any], times: int) -> float:
    """The median seconds of work() on the device, after three calls to warm up."""
    for _ in range(3):
        work()
    seconds = []
    for _ in range(times):
        place.wait()
        start = time.perf_counter()
        work()
        place.wait()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def rate_text(rate: float) -> str:
    """A rate in 1e12 a second: two digits after the point, and of a CPU two that count."""
    return f"{rate / 1e12:,.2f}" if rate >= 1e11 else f"{rate / 1e12:.2g}"


def rate_line(
    place: Place,
    what: tuple[str, str],
    rate: float,
    sheet: float | None,
    share: float,
    unit: str,
    alike: float = ALIKE,
) -> Line:
    """One line of a rate in `unit` of 1e12, with that of the slowest GPU; a straggler is named by its uuid. A collective call.

    what: the check, and what it measures. share: of the data sheet's `sheet`, at least; alike: of the median of all GPUs.
    """
    every = place.gather((rate, place.name))
    rates = [value for value, _ in every]
    least = share * sheet if sheet else None
    low = slow_places(rates, alike if place.on_gpu else ALIKE_ON_CPU)
    verdict = SLOW if low and place.on_gpu else at_least(min(rates), least)
    low += [number for number, value in enumerate(rates) if least and value < least and number not in low]
    notes = [f"{every[number][1]} reaches {rate_text(rates[number])}" for number in low]
    values = {"rates": rates, "uuids": [name for _, name in every], "data_sheet": sheet}
    expected = f"≥ {least / 1e12:,.2f} ({share:.0%} of the data sheet's)" if least else ""
    measured = f"{rate_text(min(rates))} {unit}"
    if place.processes > 1:
        measured += f" (most {rate_text(max(rates))})"
    return Line(*what, measured, expected, verdict, "; ".join(notes), values)


def _seconds_under_load(place: Place, work: Callable[[], Any], times: int) -> float:
    """Seconds of work() once the device has done nothing else for a while, and has the clock that its power and heat allow."""
    end = time.perf_counter() + (TINY_LOAD_SECONDS if place.tiny else LOAD_SECONDS)
    seconds = 0.0
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(times):
            work()
        place.wait()
        seconds = (time.perf_counter() - start) / times
    return seconds


def check_products(place: Place) -> Iterator[Line]:
    """Matrix products of random numbers in bf16, and in eight bits where the chip has them."""
    n, times = (256, 3) if place.tiny else (8192, 20)
    a, b = (torch.randn(n, n, device=place.device, dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * n**3 / median_seconds(place, lambda: a @ b, times)
    peak = place.gpu.peak if place.gpu else None
    yield rate_line(place, ("products", f"bf16, {n} × {n}"), rate, peak, PRODUCT_SHARE, "TFLOP/s")
    rate = 2 * n**3 / _seconds_under_load(place, lambda: a @ b, times)
    load = TINY_LOAD_SECONDS if place.tiny else LOAD_SECONDS
    yield rate_line(place, ("products", f"after {load:g} s of load"), rate, None, 0, "TFLOP/s", ALIKE_WHEN_WARM)
    if not place.on_gpu or torch.cuda.get_device_capability(place.device) < (8, 9):
        yield Line("products", "fp8", verdict=SKIPPED, note="no products of eight bits here")
        return
    scale = torch.ones((), device=place.device)
    low_a, low_b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t().contiguous().t()

    def multiply() -> torch.Tensor:
        return torch._scaled_mm(low_a, low_b, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True)

    rate = 2 * n**3 / median_seconds(place, multiply, times)
    yield rate_line(place, ("products", f"fp8, {n} × {n}"), rate, 2 * peak if peak else None, FP8_SHARE, "TFLOP/s")


def check_memory(place: Place) -> Iterator[Line]:
    """Bytes read and written by a copy within the GPU's memory."""
    size = 1 << 22 if place.tiny else 1 << 32
    source = torch.empty(size, dtype=torch.uint8, device=place.device).random_()
    target = torch.empty_like(source)
    rate = 2 * size / median_seconds(place, lambda: target.copy_(source), 10)
    sheet = place.sheet.bandwidth if place.sheet else None
    yield rate_line(place, ("memory", "copy on the device"), rate, sheet, COPY_SHARE, "TB/s")
    if place.on_gpu:
        host = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
        part = target[: 1 << 28]
        rate = min(place.gather(host.numel() / median_seconds(place, lambda: host.copy_(part), 5)))
        yield Line("memory", "from the GPU to the host", f"{rate / 1e9:.1f} GB/s", values={"bytes_per_second": rate})
