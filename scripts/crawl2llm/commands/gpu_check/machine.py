"""The machine: GPUs, driver, versions and MIG slices; the shared memory of processes; the speed of a folder."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch

from crawl2llm.commands.gpu_check.lines import OK, SKIPPED, SLOW, WRONG, Line
from crawl2llm.commands.gpu_check.place import Place, uuid_of
from crawl2llm.core import devices
from crawl2llm.training.group import why_unseen

CHECK = "machine"
PACKAGES = ("torch", "transformers", "triton", "deepspeed", "torchao", "nvidia-nccl-cu13")
LEAST = {"torch": (2, 11), "transformers": (5, 17)}
SHARED = Path("/dev/shm")  # noqa: S108 - NCCL and loaders of several processes use it
LEAST_SHARED = 1 << 30
LEAST_FOLDER = 0.2e9  # bytes/s: a checkpoint of 1B parameters, 12.4 GB, in a minute


def check(place: Place) -> Iterator[Line]:
    """Lines of GPUs, driver, versions and /dev/shm."""
    if not place.on_gpu:
        note = why_unseen() or "torch sees no CUDA device"
        yield Line(CHECK, "GPUs", "none", "", SKIPPED if place.tiny else WRONG, note)
    else:
        yield from _gpu_lines()
    yield from _version_lines()
    shared = shutil.disk_usage(SHARED).total if SHARED.is_dir() else 0
    small = shared < LEAST_SHARED and place.processes > 1
    note = "NCCL and loaders share memory there: start the container with a larger --shm-size" if small else ""
    yield Line(
        CHECK, str(SHARED), f"{shared / 1e9:.1f} GB", "≥ 1.1 GB", WRONG if small else OK, note, {"bytes": shared}
    )


def _gpu_lines() -> Iterator[Line]:
    for number in range(torch.cuda.device_count()):
        of = torch.cuda.get_device_properties(number)
        uuid = uuid_of(torch.device("cuda", number))
        values = {"name": of.name, "uuid": uuid, "memory_bytes": of.total_memory}
        yield Line(CHECK, f"GPU {number}", f"{of.name}, {of.total_memory / 2**30:.1f} GiB", note=uuid, values=values)
    slices = sum(len(gpu.slices) for gpu in devices.installed_gpus())
    note = "a slice has no peak to compare with" if slices else ""
    yield Line(CHECK, "MIG slices", str(slices) if slices else "none", note=note, values={"slices": slices})
    driver, cuda = devices.driver_version(), int((torch.version.cuda or "0").split(".")[0])
    least = devices.LEAST_DRIVER.get(cuda, 0)
    old = bool(driver) and int(driver.split(".")[0]) < least
    expected = f"≥ {least} for CUDA {torch.version.cuda}"
    yield Line(CHECK, "driver", driver or "not known", expected, WRONG if old else OK, values={"driver": driver})


def _version_lines() -> Iterator[Line]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    for name, least in LEAST.items():
        version = tuple(int(part) for part in versions.get(name, "0.0").split(".")[:2])
        text = ".".join(map(str, least))
        yield Line(CHECK, name, versions.get(name, "missing"), f"≥ {text}", OK if version >= least else WRONG)
    rest = ", ".join(f"{name} {version}" for name, version in versions.items() if name not in LEAST)
    yield Line(CHECK, "other versions", rest, values={"versions": versions})


def check_folder(place: Place) -> Iterator[Line]:
    """How fast each process writes and reads a file of the folder, all at once: what a checkpoint and its load are bound by."""
    size, block = (16 << 20, os.urandom(1 << 20)) if place.tiny else (1 << 30, os.urandom(8 << 20))
    path = place.folder / f".gpu-check-{os.getpid()}"
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
        slow = not place.tiny and rate < LEAST_FOLDER
        note = f"{place.folder}; {place.processes} at once" if place.processes > 1 else str(place.folder)
        yield Line(
            "folder",
            what,
            f"{rate / 1e9:.2f} GB/s",
            "≥ 0.2 GB/s",
            SLOW if slow else OK,
            note,
            {"bytes_per_second": rate},
        )
