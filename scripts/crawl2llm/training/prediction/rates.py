"""How fast a GPU works in a training step: its data sheet times what an H100 achieved of its own, or what gpu-check measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError
from crawl2llm.training import gpus

KEY = "pretrain.plan.gpu_check"
# Shares of the data sheet that an H100 SXM achieved; no other GPU was measured. Products and the copy: benchmarks/results/gpu_check.json.
# Attention, by the width of a head, products in fp32 and STRIDED: single kernels of benchmarks/results/gpu_steps.json. CONTIGUOUS and FUSED
# are fitted to the steps that `python -m benchmarks.predicted_steps` compares.
PRODUCTS, SINGLE, COPY = 0.765, 0.72, 0.878
CONTIGUOUS, FUSED = 0.80, 0.60  # of the memory's bandwidth
STRIDED = {2: 0.37, 4: 0.72}  # bytes of a number: the same of kernels whose tensors are not all of one shape and order
ATTENTION = {64: (0.364, 0.331), 128: (0.50, 0.42)}  # width of a head: (forward, backward)
LINK = 0.8  # of NVLink, PCIe or the network; assumed: one GPU was measured
KERNEL = 3e-6  # seconds of the shortest kernel; assumed
# Seconds of the host for an operation that torch starts by itself, and for one of a compiled layer; assumed.
HOST_SECONDS, HOST_COMPILED_SECONDS = 20e-6, 5e-6


@dataclass(frozen=True)
class Rates:
    """What a GPU achieves. FLOP/s: products, single (of fp32 numbers), attention by width of a head (forward, backward). Bytes/s: copy,
    contiguous, strided and fused kernels, link within a node, network for each GPU between nodes. correction: measured over predicted
    seconds.
    """

    products: float
    single: float
    attention: dict[int, tuple[float, float]]
    copy: float
    contiguous: float
    strided: dict[int, float]
    fused: float
    link: float
    network: float
    basis: str
    correction: float = 1.0

    def attention_rate(self, head: int, backward: bool) -> float:
        """FLOP/s of attention with heads of this width, by the nearest that was measured."""
        return self.attention[min(self.attention, key=lambda known: abs(known - head))][backward]

    def elementwise_rate(self, strided: int) -> float:
        """Bytes/s of a kernel that torch runs by itself; strided: see `Operation`."""
        return self.strided[2 if strided <= 2 else 4] if strided else self.contiguous

    def speed_up(self, products: float, memory: float, link: float, network: float = 1.0) -> Rates:
        """With products, all that moves bytes, links within a node, and those between nodes faster by these factors."""
        return replace(
            self,
            products=self.products * products,
            attention={
                head: (forward * products, backward * products) for head, (forward, backward) in self.attention.items()
            },
            copy=self.copy * memory,
            contiguous=self.contiguous * memory,
            strided={size: rate * memory for size, rate in self.strided.items()},
            fused=self.fused * memory,
            link=self.link * link,
            network=self.network * network,
        )


def sheet_rates(gpu: gpus.Gpu) -> Rates | None:
    """The rates of a GPU by its data sheet; None if it is not known."""
    sheet = gpus.KINDS.get(gpu.name)
    if sheet is None or gpu.peak is None:
        return None
    peak, memory = gpu.peak, sheet.bandwidth
    return Rates(
        products=PRODUCTS * peak,
        single=SINGLE * sheet.single,
        attention={head: (forward * peak, backward * peak) for head, (forward, backward) in ATTENTION.items()},
        copy=COPY * memory,
        contiguous=CONTIGUOUS * memory,
        strided={size: share * memory for size, share in STRIDED.items()},
        fused=FUSED * memory,
        link=LINK * (sheet.link or sheet.bus),
        network=LINK * sheet.network,
        basis="the data sheet" if gpu.name == "h100" else "the data sheet and an H100's share of its own",
    )


@dataclass(frozen=True)
class Checked:
    """What gpu-check measured. products, copy, link, network: FLOP/s and bytes/s of the slowest, None if it did not.

    steps: each with its `settings` of pretrain.train, `micro_batch`, `parameters` and `tokens_per_second`.
    """

    products: float | None
    copy: float | None
    link: float | None
    network: float | None
    steps: list[dict[str, Any]]


def read_check(path: Path, gpu: gpus.Gpu) -> Checked:
    """The JSON of gpu-check. Raises InputError if it cannot be read, or is of another GPU."""
    try:
        lines = json.loads(path.read_text(encoding="utf-8"))["lines"]
        values = {(line["check"], line["what"]): line.get("values") or {} for line in lines}
        name = next((each["name"] for (check, _), each in values.items() if check == "machine" and "name" in each), "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{KEY} is {str(path)!r}, which is no JSON of crawl2llm gpu-check: {error}") from error
    checked_gpu = gpus.find(name)
    if checked_gpu is None or checked_gpu.name != gpu.name:
        raise InputError(
            f"{KEY} is {str(path)!r}, which is of {name or 'no GPU'!r}, and the training is planned for {gpus.with_article(gpu.name)}"
        )

    def slowest(check: str, begin: str) -> float | None:
        rates = [
            each["rates"]
            for (checked, what), each in values.items()
            if checked == check and what.startswith(begin) and "rates" in each
        ]
        return min(rates[0]) if rates else None

    def bus_rate(way: str) -> float | None:
        return next(
            (
                each["bus_bytes_per_second"]
                for (checked, what), each in values.items()
                if checked == "links" and way in what and each.get("bus_bytes_per_second")
            ),
            None,
        )

    steps = [
        each
        for (check, _), each in values.items()
        if check == "steps" and each.get("settings") is not None and not each.get("eight_bits")
    ]
    links = bus_rate("within a node"), bus_rate("between nodes")
    return Checked(slowest("products", "bf16"), slowest("memory", "copy"), *links, steps)


def checked_rates(rates: Rates, checked: Checked, path: Path) -> Rates:
    """With what gpu-check measured in the place of the data sheet's shares."""
    faster = rates.speed_up(
        checked.products / rates.products if checked.products else 1.0,
        checked.copy / rates.copy if checked.copy else 1.0,
        checked.link / rates.link if checked.link else 1.0,
        checked.network / rates.network if checked.network else 1.0,
    )
    return replace(faster, basis=f"what gpu-check measured ({path.name})")
