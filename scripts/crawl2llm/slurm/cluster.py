"""The cluster as scontrol and sinfo tell it: partitions, their nodes, and the GRES of these."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import re2

from crawl2llm.core import retries
from crawl2llm.slurm import queue


@dataclass(frozen=True)
class Node:
    """One compute node. `gres` maps (`gpu`, type or "") to a count."""

    name: str
    cpus: int
    memory: int
    gres: dict[tuple[str, str], int]
    usable: bool


@dataclass(frozen=True)
class Partition:
    """One partition; None is no limit, times in seconds."""

    name: str
    up: bool
    max_time: int | None
    max_nodes: int | None
    nodes: tuple[Node, ...]


def parse_records(text: str) -> Iterable[dict[str, str]]:
    """The lines of `scontrol show … --oneliner` as dictionaries (values with spaces are cut: none is used here)."""
    for line in text.splitlines():
        yield dict(part.split("=", 1) for part in line.split() if "=" in part)


def parse_gres(text: str) -> dict[tuple[str, str], int]:
    """`gpu:h100:8(S:0-1),nvme:1` → {("gpu", "h100"): 8, ("nvme", ""): 1}; `(null)` → {}."""
    counts: dict[tuple[str, str], int] = {}
    for part in re2.sub(r"\([^)]*\)", "", text).split(","):
        cells = part.replace("=", ":").split(":")
        if not cells[0]:
            continue
        count = int(cells[-1]) if len(cells) > 1 and cells[-1].isdigit() else 1
        kind = cells[1] if len(cells) > 1 and not cells[1].isdigit() else ""
        counts[(cells[0], kind)] = counts.get((cells[0], kind), 0) + count
    return counts


def has_enough_gres(has: dict[tuple[str, str], int], wants: dict[tuple[str, str], int]) -> bool:
    """Whether a node's GRES cover a request; a request without a type takes any type."""
    for (name, kind), count in wants.items():
        have = sum(n for (resource, its), n in has.items() if resource == name and kind in ("", its))
        if have < count:
            return False
    return True


def gres_text(has: dict[tuple[str, str], int]) -> str:
    """GRES as one writes them."""
    return ",".join(":".join(filter(None, [name, kind, str(count)])) for (name, kind), count in has.items()) or "none"


def read_partitions() -> dict[str, Partition]:
    """The cluster's partitions with their nodes, by scontrol."""
    nodes: dict[str, list[Node]] = {}
    for row in parse_records(retries.ask_slurm("scontrol", "show", "node", "--oneliner")):
        states = set(re.split(r"[+*]", row["State"]))
        node = Node(
            name=row["NodeName"],
            cpus=int(row["CPUTot"]),
            memory=int(row["RealMemory"]),
            gres=parse_gres(row.get("Gres", "")),
            usable=not states & {"DOWN", "DRAIN", "DRAINED", "FAIL", "NOT_RESPONDING", "FUTURE"},
        )
        for partition in row.get("Partitions", "").split(","):
            nodes.setdefault(partition, []).append(node)
    return {
        row["PartitionName"]: Partition(
            name=row["PartitionName"],
            up=row.get("State") == "UP",
            max_time=queue.parse_seconds(row.get("MaxTime", "")),
            max_nodes=int(row["MaxNodes"]) if row.get("MaxNodes", "").isdigit() else None,
            nodes=tuple(nodes.get(row["PartitionName"], ())),
        )
        for row in parse_records(retries.ask_slurm("scontrol", "show", "partition", "--oneliner"))
    }


def default_partition() -> str:
    """The partition that sinfo marks with a star; "" where none is: a site's own submit script chooses then."""
    return next((line[:-1] for line in retries.ask_slurm("sinfo", "-h", "-o", "%P").split() if line.endswith("*")), "")
