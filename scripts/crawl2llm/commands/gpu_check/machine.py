"""The machine, or each node: GPUs, driver, versions and MIG slices; the shared memory of processes; the speed of a folder."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from crawl2llm.commands.gpu_check.lines import OK, SKIPPED, WRONG, Line, at_least
from crawl2llm.commands.gpu_check.place import Place, node_name, uuid_of
from crawl2llm.core import devices
from crawl2llm.training.group import why_unseen

CHECK = "machine"
PACKAGES = ("torch", "transformers", "triton", "deepspeed", "torchao", "nvidia-nccl-cu13")
LEAST = {"torch": (2, 11), "transformers": (5, 17)}
SHARED = Path("/dev/shm")  # noqa: S108 - NCCL and loaders of several processes use it
LEAST_SHARED = 1 << 30
LEAST_FOLDER = 0.2e9  # bytes/s: a checkpoint of 1B parameters, 12.4 GB, in a minute


@dataclass(frozen=True)
class Facts:
    """What a node has. gpus: (name, uuid, bytes of memory) each; shared: bytes of /dev/shm."""

    node: str
    gpus: list[tuple[str, str, int]]
    slices: int
    driver: str
    versions: dict[str, str]
    shared: int
    uncorrected: dict[str, int]  # errors of the memory that its code could not mend, by uuid

    @property
    def kinds(self) -> dict[str, str]:
        """What has to be the same on all nodes: names with versions, or what else they are compared by."""
        gpus = ", ".join(f"{number} {name}" for name, number in Counter(name for name, *_ in self.gpus).items())
        return {"GPUs": gpus or "none", "driver": self.driver or "none"} | self.versions


def read_facts(place: Place) -> Facts:
    """Those of this node."""
    gpus = []
    for number in range(torch.cuda.device_count() if place.on_gpu else 0):
        of = torch.cuda.get_device_properties(number)
        gpus.append((of.name, uuid_of(torch.device("cuda", number)), of.total_memory))
    slices = sum(len(gpu.slices) for gpu in devices.installed_gpus())
    shared = shutil.disk_usage(SHARED).total if SHARED.is_dir() else 0
    driver = devices.driver_version() if place.on_gpu else ""
    return Facts(node_name(), gpus, slices, driver, read_versions(), shared, memory_errors() if place.on_gpu else {})


def read_versions() -> dict[str, str]:
    """Versions of Python and of the packages that are installed."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def memory_errors() -> dict[str, int]:
    """Uncorrected errors of each GPU's memory since the driver was loaded, by uuid; those that nvidia-smi does not count are not there."""
    text = devices.run_nvidia_smi("--query-gpu=uuid,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader")
    rows = [line.split(", ") for line in text.splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].strip().isdigit()}


def check(place: Place) -> Iterator[Line]:
    """Lines of GPUs, driver, versions and /dev/shm, of each node."""
    first = os.environ["LOCAL_RANK"] == "0"
    every: list[Facts] = [facts for facts in place.gather(read_facts(place) if first else None) if facts]
    for facts in every:
        of = f" of {facts.node}" if len(every) > 1 else ""
        if facts.gpus:
            yield from _gpu_lines(facts, of)
        else:
            note = why_unseen() or "torch sees no CUDA device"
            yield Line(CHECK, f"GPUs{of}", "none", "", SKIPPED if place.tiny else WRONG, note)
        small = facts.shared < LEAST_SHARED and place.processes_here > 1
        note = "NCCL and loaders share memory there: start the container with a larger --shm-size" if small else ""
        shared, verdict = f"{facts.shared / 1e9:.1f} GB", WRONG if small else OK
        yield Line(
            CHECK, f"{SHARED}{of}", shared, f"≥ {LEAST_SHARED / 1e9:.1f} GB", verdict, note, {"bytes": facts.shared}
        )
    yield from _version_lines(every[0].versions)
    if len(every) > 1:
        yield same_line(every)


def same_line(every: Sequence[Facts]) -> Line:
    """Whether all nodes have the same GPUs, driver and versions, and which differ."""
    differences = []
    for name in dict.fromkeys(name for facts in every for name in facts.kinds):
        nodes: dict[str, list[str]] = {}
        for facts in every:
            nodes.setdefault(facts.kinds.get(name, "missing"), []).append(facts.node)
        if len(nodes) > 1:
            words = [f"{value} on {' '.join(names)}" for value, names in nodes.items()]
            differences.append(f"{name}: {', '.join(words)}")
    names = [facts.node for facts in every]
    measured = "they differ" if differences else "the same"
    verdict = WRONG if differences else OK
    return Line(
        CHECK,
        f"GPUs, driver and versions of {len(every)} nodes",
        measured,
        "the same",
        verdict,
        "; ".join(differences),
        {"nodes": names},
    )


def _gpu_lines(facts: Facts, of: str) -> Iterator[Line]:
    for number, (name, uuid, memory) in enumerate(facts.gpus):
        errors = facts.uncorrected.get(uuid, 0)
        note = f"{uuid}, {errors} uncorrected errors of its memory: have it looked at" if errors else uuid
        values = {"name": name, "uuid": uuid, "memory_bytes": memory, "memory_errors": errors}
        measured = f"{name}, {memory / 2**30:.1f} GiB"
        yield Line(CHECK, f"GPU {number}{of}", measured, "", WRONG if errors else OK, note, values)
    note = "a slice has no peak to compare with" if facts.slices else ""
    measured = str(facts.slices) if facts.slices else "none"
    yield Line(CHECK, f"MIG slices{of}", measured, note=note, values={"slices": facts.slices})
    cuda = int((torch.version.cuda or "0").split(".")[0])
    expected = f"≥ {devices.LEAST_DRIVER.get(cuda, 0)} for CUDA {torch.version.cuda}"
    old, values = devices.is_driver_too_old(facts.driver, cuda), {"driver": facts.driver}
    yield Line(CHECK, f"driver{of}", facts.driver or "not known", expected, WRONG if old else OK, values=values)


def _version_lines(versions: dict[str, str]) -> Iterator[Line]:
    for name, least in LEAST.items():
        version = tuple(int(part) for part in versions.get(name, "0.0").split(".")[:2])
        text = ".".join(map(str, least))
        yield Line(CHECK, name, versions.get(name, "missing"), f"≥ {text}", OK if version >= least else WRONG)
    rest = ", ".join(f"{name} {version}" for name, version in versions.items() if name not in LEAST)
    yield Line(CHECK, "other versions", rest, values={"versions": versions})


def check_folder(place: Place) -> Iterator[Line]:
    """How fast each process writes and reads a file of the folder, all at once: what a checkpoint and its load are bound by."""
    size, block = (16 << 20, os.urandom(1 << 20)) if place.tiny else (1 << 30, os.urandom(8 << 20))
    path = place.folder / f".gpu-check-{node_name()}-{os.getpid()}"
    try:
        start = time.perf_counter()
        with path.open("wb") as handle:
            for _ in range(size // len(block)):
                handle.write(block)
            os.fsync(handle.fileno())
        written = time.perf_counter() - start
        with path.open("rb", buffering=0) as handle:
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # else the page cache would be measured
            start = time.perf_counter()
            while handle.read(8 << 20):
                pass
        read = time.perf_counter() - start
    finally:
        path.unlink(missing_ok=True)
    for what, seconds in (("written", written), ("read", read)):
        rate = size * place.processes / max(place.gather(seconds))
        least = None if place.tiny else LEAST_FOLDER  # a small file says little
        note = f"{place.folder}; {place.processes} at once" if place.processes > 1 else str(place.folder)
        yield Line(
            "folder",
            what,
            f"{rate / 1e9:.2f} GB/s",
            f"≥ {least / 1e9:.1f} GB/s" if least else "",
            at_least(rate, least),
            note,
            {"bytes_per_second": rate},
        )
