"""How fast GPUs exchange: within a node against NVLink, between nodes against their network cards, link by link; and by which way.

On a CPU the same is done over gloo, with small sizes.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from crawl2llm.commands.gpu_check.lines import OK, SKIPPED, SLOW, Line, slow_places
from crawl2llm.commands.gpu_check.place import Place, node_name
from crawl2llm.commands.gpu_check.speed import ALIKE_ON_CPU, LINK_SHARE, median_seconds

CHECK = "links"
NCCL_LOG = "nccl.log"  # in the scratch folder; NCCL writes there if the worker asked for it
WAY = re.compile(r"NET/(?:IB|Socket|[\w-]+) : Using [^\n]*|via (?:P2P|SHM|NET)/[\w/]+")
MOST_WAYS = 6
INFINIBAND, NETWORK = Path("/sys/class/infiniband"), Path("/sys/class/net")
ADDRESS_OF = 0x8915  # SIOCGIFADDR of linux/sockios.h
ALIKE = 0.8  # of the median: a link below is a straggler


def check(place: Place) -> Iterator[Line]:
    """An all-reduce within each node, one between the nodes, each link from a GPU to the next, and NCCL's way."""
    if place.processes == 1:
        yield Line(CHECK, "all-reduce", verdict=SKIPPED, note="one process")
        return
    here, rank = place.processes_here, dist.get_rank()
    network = _network_rate(place)
    if here > 1:
        groups = [list(range(start, start + here)) for start in range(0, place.processes, here)]
        yield _reduce_line(place, "within a node", groups, place.sheet.link if place.sheet else None, node_name())
    if place.nodes > 1:
        groups = [list(range(start, place.processes, here)) for start in range(here)]
        yield _reduce_line(place, "between nodes", groups, network, f"number {rank % here} of each node")
        if here > 1:
            yield _reduce_line(place, "over all", [list(range(place.processes))], None, "all")
    yield from _neighbour_lines(place, network)
    yield _way_line(place)


def bus_rate(size: int, processes: int, seconds: float) -> float:
    """Bytes/s that each link carries in an all-reduce of `size` bytes, as nccl-tests count it (doc/PERFORMANCE.md)."""
    return 2 * (processes - 1) / processes * size / seconds


def _reduce_line(place: Place, way: str, groups: list[list[int]], sheet: float | None, name: str) -> Line:
    """The all-reduce of all groups at once. name: of this process's group. A collective call."""
    mine: Any = None
    for ranks in groups:
        group = dist.new_group(ranks)  # every process makes every group
        mine = group if dist.get_rank() in ranks else mine
    size = 1 << 20 if place.tiny else 1 << 30
    values = torch.ones(size // 2, dtype=torch.bfloat16, device=place.device)
    seconds = median_seconds(place, lambda: dist.all_reduce(values, group=mine), 5)
    dist.destroy_process_group(mine)  # NCCL keeps buffers for each on the GPU
    rates: dict[str, float] = {}
    for group_name, rate in place.gather((name, bus_rate(size, len(groups[0]), seconds))):
        rates[group_name] = min(rate, rates.get(group_name, rate))
    least = LINK_SHARE * sheet if sheet else None
    names, slow = list(rates), _stragglers(place, list(rates.values()), least)
    values_by_name = {"bus_bytes_per_second": min(rates.values()), "groups": rates, "data_sheet": sheet}
    return Line(
        CHECK,
        f"all-reduce {way}, {len(groups[0])} processes, {size / 2**20:,.0f} MiB",
        _rates_text(list(rates.values()), "bus"),
        f"≥ {least / 1e9:,.0f} GB/s ({LINK_SHARE:.0%} of the data sheet's)" if least else "",
        SLOW if slow and not place.tiny else OK,
        "; ".join(f"{names[number]} reaches {rates[names[number]] / 1e9:,.1f}" for number in slow),
        values_by_name,
    )


def _stragglers(place: Place, rates: list[float], least: float | None) -> list[int]:
    """The places of rates that are below those of the others, or below `least`."""
    alike = set(slow_places(rates, ALIKE if place.on_gpu else ALIKE_ON_CPU))
    return sorted(alike | {number for number, rate in enumerate(rates) if least and rate < least})


def _rates_text(rates: Sequence[float], kind: str = "") -> str:
    text = f"{min(rates) / 1e9:,.1f} GB/s {kind}".rstrip()
    return f"{text} (most {max(rates) / 1e9:,.1f})" if len(rates) > 1 else text


def _neighbour_lines(place: Place, network: float | None) -> Iterator[Line]:
    """From each GPU to the next, one pair at a time: which link is slow. A line for pairs within nodes and one for those between."""
    names, last = place.gather(place.name), place.processes - 1
    pairs = [(rank, rank + 1) for rank in range(last)] + ([(last, 0)] if last > 1 else [])
    rates = {pair: _pair_rate(place, *pair) for pair in pairs}
    for way, between, sheet in (
        ("within a node", False, place.sheet.link if place.sheet else None),
        ("between nodes", True, network),
    ):
        some = [
            pair for pair in pairs if (pair[0] // place.processes_here != pair[1] // place.processes_here) == between
        ]
        if not some:
            continue
        every = [rates[pair] for pair in some]
        slow = _stragglers(place, every, LINK_SHARE * sheet if sheet else None)
        notes = [
            f"{names[some[number][0]]} → {names[some[number][1]]} reaches {every[number] / 1e9:,.1f}" for number in slow
        ]
        # Cards without NVLink are joined by different ways through the processor.
        judged = place.on_gpu and (between or sheet is not None)
        values = {"bytes_per_second": {f"{start}-{end}": rates[start, end] for start, end in some}}
        expected = f"≥ {LINK_SHARE * sheet / 1e9:,.0f} GB/s" if sheet else ""
        verdict = SLOW if slow and judged else OK
        yield Line(
            CHECK,
            f"from each process to the next {way}",
            _rates_text(every),
            expected,
            verdict,
            "; ".join(notes),
            values,
        )


def _pair_rate(place: Place, start: int, end: int) -> float:
    """Bytes/s that one process sends to another, while all others wait. A collective call."""
    size, seconds = (1 << 18 if place.tiny else 1 << 28), 0.0
    rank = dist.get_rank()
    if rank in (start, end):
        values = torch.zeros(size, dtype=torch.uint8, device=place.device)

        def exchange() -> None:
            if rank == start:
                dist.send(values, end)
            else:
                dist.recv(values, start)

        seconds = median_seconds(place, exchange, 5)
    return size / max(place.gather(seconds))


def _network_rate(place: Place) -> float | None:
    """Bytes/s of the network cards of a node for each of its processes, by what the kernel says; None if it says nothing. Collective."""
    here = infiniband_rate() or interface_rate(gloo_interface()[0])
    every = place.gather(here)
    return min(every) / place.processes_here if place.on_gpu and all(every) else None


def infiniband_rate(root: Path = INFINIBAND) -> float:
    """Bytes/s of all active ports of InfiniBand or RoCE together; 0.0 without any."""
    total = 0.0
    for port in root.glob("*/ports/*"):
        with suppress(OSError, ValueError):
            if "ACTIVE" in (port / "state").read_text():
                total += float((port / "rate").read_text().split()[0]) * 1e9 / 8  # `400 Gb/sec (4X NDR)`
    return total


def interface_rate(name: str, root: Path = NETWORK) -> float:
    """Bytes/s of a network interface; 0.0 if the kernel does not say it, as of loopback."""
    with suppress(OSError, ValueError):
        return max(0.0, float((root / name / "speed").read_text()) * 1e6 / 8)
    return 0.0


def gloo_interface() -> tuple[str, str]:
    """(name, address) of the interface that gloo goes by: GLOO_SOCKET_IFNAME's, else that of this host's name."""
    address = ""
    with suppress(OSError):
        address = socket.gethostbyname(socket.gethostname())
    named = os.environ.get("GLOO_SOCKET_IFNAME", "")
    for _, name in socket.if_nameindex():
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            request = struct.pack("256s", name[:15].encode())
            its = socket.inet_ntoa(fcntl.ioctl(probe.fileno(), ADDRESS_OF, request)[20:24])
            if name == named or (not named and its == address):
                return name, its
    return named, address


def _way_line(place: Place) -> Line:
    """By which interfaces and channels NCCL goes, by its own log; on a CPU gloo's interface. Slow by sockets beside InfiniBand."""
    if not place.on_gpu:
        ways = [" ".join(filter(None, gloo_interface()))]
        return Line(CHECK, "gloo's interface", ways[0] or "not known", values={"ways": ways})
    path = place.scratch / NCCL_LOG
    ways = nccl_ways(path.read_text(errors="replace")) if path.exists() else []
    sockets = any(way.startswith(("NET/Socket", "via NET/Socket")) for way in ways)
    slow = place.nodes > 1 and sockets and infiniband_rate() > 0
    note = (
        "there is InfiniBand here, and NCCL goes by sockets: is NCCL_IB_DISABLE set, or libibverbs missing?"
        if slow
        else ""
    )
    text = "; ".join(ways) or "not in its log"
    return Line(CHECK, "NCCL's way", text, verdict=SLOW if slow else OK, note=note, values={"ways": ways})


def nccl_ways(log: str) -> list[str]:
    """The interfaces and channels of a log that NCCL_DEBUG=INFO wrote, each once."""
    return list(dict.fromkeys(WAY.findall(log)))[:MOST_WAYS]
