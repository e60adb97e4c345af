"""The GPUs of this machine and the driver below them, found without torch: by nvidia-smi, else by the driver's own files.

Run as a program, before the packages are installed, it says in one line if the driver is too old for torch's default wheel. So it imports
the standard library alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from crawl2llm.core.console import print_line

DRIVER = Path("/proc/driver/nvidia")
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
SECONDS = 60  # that nvidia-smi may take; without persistence mode it wakes every GPU first
WHEEL_CUDA = 13  # major version of the CUDA of torch's default wheel, in the version of envs/lock.txt
# The least driver for each major version of CUDA: docs.nvidia.com/deploy/cuda-compatibility, "Minor Version Compatibility", table 1.
LEAST_DRIVER = {11: 450, 12: 525, 13: 580}


@dataclass(frozen=True)
class Gpu:
    """A GPU by its UUID ("" if nobody says it), with the UUIDs of its MIG slices if it is cut."""

    uuid: str
    slices: tuple[str, ...] = ()


def parse_gpu_list(text: str) -> list[Gpu]:
    """The GPUs of the output of `nvidia-smi -L`, in its order: a line for each, and indented below it one for each MIG slice."""
    gpus: list[Gpu] = []
    for line in text.splitlines():
        uuid = match[1] if (match := re.search(r"\(UUID: ([^)]+)\)", line)) else ""
        if re.match(r"GPU \d+:", line):
            gpus.append(Gpu(uuid))
        elif gpus and uuid and re.match(r"\s+MIG ", line):
            gpus[-1] = Gpu(gpus[-1].uuid, (*gpus[-1].slices, uuid))
    return gpus


def read_driver_gpus(root: Path) -> list[Gpu]:
    """The GPUs of the driver's files; they do not tell MIG slices. A GPU that nobody has used yet may have no UUID there."""
    gpus = []
    for path in sorted(root.glob("gpus/*/information")):
        match = re.search(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]+)\s*$", path.read_text(encoding="utf-8"), re.MULTILINE)
        gpus.append(Gpu(match[1] if match else ""))
    return gpus


def run_nvidia_smi(*options: str) -> str:
    """What nvidia-smi says; "" without it, or if it fails, as without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        return subprocess.run([program, *options], capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def installed_gpus(root: Path = DRIVER) -> list[Gpu]:
    """Every GPU of this machine, whatever programs may see."""
    return parse_gpu_list(run_nvidia_smi("-L")) or read_driver_gpus(root)


def device_names(gpus: list[Gpu]) -> list[str]:
    """One name for each GPU or MIG slice, as CUDA_VISIBLE_DEVICES takes it: its UUID.

    CUDA numbers GPUs by speed and nvidia-smi by place, so numbers stand only if not every GPU has a UUID.
    """
    if all(gpu.uuid for gpu in gpus):
        return [name for gpu in gpus for name in gpu.slices or (gpu.uuid,)]
    return [str(number) for number in range(len(gpus))]


def is_gpu_name(name: str, gpus: list[Gpu]) -> bool:
    """Whether an entry of CUDA_VISIBLE_DEVICES names a GPU or a MIG slice: by its number, or by the beginning of its UUID."""
    if re.fullmatch(r"\d+", name):
        return int(name) < len(gpus)
    uuids = [uuid for gpu in gpus for uuid in (gpu.uuid, *gpu.slices)]
    # Without a UUID in the driver's files nobody can tell; the driver's own list of slices may be missing too.
    return any(uuid.startswith(name) for uuid in uuids) if all(uuids) else name.startswith(("GPU-", "MIG-"))


def visible_gpus(environment: Mapping[str, str] = os.environ, root: Path = DRIVER) -> list[str]:
    """Names of the GPUs that programs started from here see, as entries of CUDA_VISIBLE_DEVICES, in its order.

    As CUDA reads that variable (CUDA C++ Programming Guide, "CUDA Environment Variables"): the entries before the first that names no GPU;
    none if it is empty or names a GPU twice.
    """
    gpus = installed_gpus(root)
    if VISIBLE_VARIABLE not in environment:
        return device_names(gpus)
    seen: list[str] = []
    for name in (entry.strip() for entry in environment[VISIBLE_VARIABLE].split(",")):
        if not name or not is_gpu_name(name, gpus):
            break
        seen.append(name)
    return seen if len(set(seen)) == len(seen) else []


def driver_version(root: Path = DRIVER) -> str:
    """The version of NVIDIA's driver, such as `580.65.06`; "" without one."""
    versions = run_nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader").split()
    if versions:
        return versions[0]
    try:
        text = (root / "version").read_text(encoding="utf-8")
    except OSError:
        return ""
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return match[1] if match else ""


def is_driver_too_old(version: str, cuda: int) -> bool:
    """Whether a driver of this version runs no program that is built with this major version of CUDA."""
    major = re.match(r"\d+", version)
    return bool(major) and int(major[0]) < LEAST_DRIVER.get(cuda, 0)  # type: ignore[index]


def cuda_of_torch() -> int | None:
    """The major version of CUDA that the torch here is built with, which is not imported; 0 for a build without, None without torch."""
    spec = find_spec("torch")
    if spec is None or not spec.origin:
        return None
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    match = re.search(r"^cuda\b[^=]*=\s*['\"](\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0


def why_gpus_unseen(cuda: int | None, root: Path = DRIVER) -> str:
    """Why a torch that is built with this version of CUDA sees none of the GPUs here; "" if nothing is known to be wrong."""
    version = driver_version(root)
    if not version or cuda is None:
        return ""
    if cuda == 0:
        return f"this machine has an NVIDIA driver ({version}), but torch here is built without CUDA: it sees no GPU"
    if is_driver_too_old(version, cuda):
        return (
            f"NVIDIA's driver {version} is too old for torch built with CUDA {cuda}, which needs {LEAST_DRIVER[cuda]} or newer: it sees no "
            f'GPU. Update the driver, or install torch\'s build for an older CUDA (docs/engines.md, "What a GPU needs")'
        )
    return ""


def main() -> int:
    cuda = cuda_of_torch()
    if line := why_gpus_unseen(WHEEL_CUDA if cuda is None else cuda):
        print_line(f"warning: {line}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
