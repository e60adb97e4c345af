"""How fast a GPU multiplies, copies and exchanges, beside its data sheet; every GPU by itself, and all of a machine together."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.commands.gpu_check.lines import SKIPPED, SLOW, Line, at_least, slow_places
from crawl2llm.commands.gpu_check.place import Place, uuid_of
from crawl2llm.training.prediction.data_sheets import COPY_SHARE, FP8_SHARE, LINK_SHARE, PRODUCT_SHARE

NCCL_LOG = "nccl.log"  # in the scratch folder; NCCL writes there if the worker asked for it
INTERFACE = re.compile(r"NET/(?:IB|Socket|[\w-]+) : Using [^\n]*|via (?:P2P|SHM|NET)/[\w/]+")


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


def rate_line(place: Place, check: str, what: str, rate: float, sheet: float | None, share: float, unit: str) -> Line:
    """One line of a rate in `unit` of 1e12, with that of the slowest GPU; a straggler is named by its uuid. A collective call."""
    uuid = uuid_of(place.device) if place.on_gpu else "cpu"
    every = place.gather((rate, uuid))
    rates = [value for value, _ in every]
    least = share * sheet if sheet else None
    low = slow_places(rates) if place.on_gpu else []
    verdict = SLOW if low else at_least(min(rates), least)
    low += [number for number, value in enumerate(rates) if least and value < least and number not in low]
    notes = [f"{every[number][1]} reaches {rates[number] / 1e12:,.2f}" for number in low]
    values = {"rates": rates, "uuids": [name for _, name in every], "data_sheet": sheet}
    expected = f"≥ {least / 1e12:,.2f} ({share:.0%} of the data sheet's)" if least else ""
    measured = f"{min(rates) / 1e12:,.2f} {unit}"
    if place.processes > 1:
        measured += f" (most {max(rates) / 1e12:,.2f})"
    return Line(check, what, measured, expected, verdict, "; ".join(notes), values)


def check_products(place: Place) -> Iterator[Line]:
    """Matrix products of random numbers in bf16, and in eight bits where the chip has them."""
    n, times = (256, 3) if place.tiny else (8192, 20)
    a, b = (torch.randn(n, n, device=place.device, dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * n**3 / median_seconds(place, lambda: a @ b, times)
    peak = place.gpu.peak if place.gpu else None
    yield rate_line(place, "products", f"bf16, {n} × {n}", rate, peak, PRODUCT_SHARE, "TFLOP/s")
    if not place.on_gpu or torch.cuda.get_device_capability(place.device) < (8, 9):
        yield Line("products", "fp8", verdict=SKIPPED, note="no products of eight bits here")
        return
    scale = torch.ones((), device=place.device)
    low_a, low_b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t().contiguous().t()

    def multiply() -> torch.Tensor:
        return torch._scaled_mm(low_a, low_b, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True)

    rate = 2 * n**3 / median_seconds(place, multiply, times)
    yield rate_line(place, "products", f"fp8, {n} × {n}", rate, 2 * peak if peak else None, FP8_SHARE, "TFLOP/s")


def check_memory(place: Place) -> Iterator[Line]:
    """Bytes read and written by a copy within the GPU's memory."""
    size = 1 << 22 if place.tiny else 1 << 32
    source = torch.empty(size, dtype=torch.uint8, device=place.device).random_()
    target = torch.empty_like(source)
    rate = 2 * size / median_seconds(place, lambda: target.copy_(source), 10)
    sheet = place.sheet.memory if place.sheet else None
    yield rate_line(place, "memory", "copy on the device", rate, sheet, COPY_SHARE, "TB/s")
    if place.on_gpu:
        host = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
        part = target[: 1 << 28]
        rate = host.numel() / median_seconds(place, lambda: host.copy_(part), 5)
        yield Line("memory", "from the GPU to the host", f"{rate / 1e9:.1f} GB/s", values={"bytes_per_second": rate})


def check_links(place: Place) -> Iterator[Line]:
    """An all-reduce over all GPUs, and by which way NCCL goes."""
    if place.processes == 1:
        yield Line("links", "all-reduce", verdict=SKIPPED, note="one process")
        return
    size = 1 << 20 if place.tiny else 1 << 30
    values = torch.ones(size // 2, dtype=torch.bfloat16, device=place.device)
    seconds = median_seconds(place, lambda: dist.all_reduce(values), 5)
    # As nccl-tests count it: what each link has to carry.
    rate = 2 * (place.processes - 1) / place.processes * size / max(place.gather(seconds))
    sheet = place.sheet.link if place.sheet else None
    least = LINK_SHARE * sheet if sheet else None
    expected = f"≥ {least / 1e9:,.0f} GB/s over NVLink" if least else ""
    ways = nccl_ways(place.scratch)
    yield Line(
        "links", f"all-reduce of {size / 2**30:.3g} GiB, {place.processes} processes", f"{rate / 1e9:,.1f} GB/s bus", expected,
        at_least(rate, least), "; ".join(ways), {"bus_bytes_per_second": rate, "ways": ways},
    )  # fmt: skip


def nccl_ways(scratch: Path) -> list[str]:
    """By which interfaces and channels NCCL goes, by its own log."""
    path = scratch / NCCL_LOG
    if not path.exists():
        return [f"interface {os.environ.get('GLOO_SOCKET_IFNAME', 'of gloo')}"] if not torch.cuda.is_available() else []
    return list(dict.fromkeys(INTERFACE.findall(path.read_text(errors="replace"))))[:6]
