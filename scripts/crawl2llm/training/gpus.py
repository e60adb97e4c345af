"""GPUs by name: the memory that training can plan with, the peak that its use is measured against, and what else data sheets say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawl2llm.core.errors import InputError

if TYPE_CHECKING:
    from crawl2llm.training.pretraining_settings import PlanSettings

DRIVER = Path("/proc/driver/nvidia/gpus")
UNNAMED = "gpu"  # a GPU that there is, of which nobody says the kind


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU. memory: bytes; peak: dense bf16 FLOP/s, None for a kind that is not in the table."""

    name: str
    memory: float
    peak: float | None


@dataclass(frozen=True)
class Kind:
    """A row of the table. memory: GB of 1e9 bytes; peak: dense bf16 FLOP/s; products: the whole names that the driver gives it.

    bandwidth: of the memory; link: of NVLink in one direction, None if cards differ; bus: of PCIe in one direction; network: between nodes
    for each GPU; all in bytes/s. fp8: has products of eight bits, at twice the peak of bf16; single: FLOP/s in fp32 without tensor cores.
    """

    memory: float
    peak: float
    products: str
    bandwidth: float
    link: float | None = None
    fp8: bool = True
    single: float = 67e12
    bus: float = 64e9
    network: float = 50e9


# Memory is what NVIDIA's data sheets name the card by; drivers report some 5 % more (85.5e9 bytes of an H100 of 80 GB), which is left
# as a reserve. The rest is of NVIDIA's data sheets (nvidia.com/en-us/data-center: A100, H100, H200, GH200 Grace Hopper, HGX B200, GB200
# NVL72 and L40S); if a sheet has the peak with sparsity, half of it, and of NVLink and PCIe, whose figure is of both directions, half.
# Networks are those of NVIDIA's own nodes (DGX A100: 200 Gb/s for each GPU, DGX H100, H200 and B200: 400 Gb/s); an L40S has what its buyer
# puts beside it, taken as an A100's. H100 PCIe and NVL are those of torchtitan too (torchtitan/tools/utils.py); H200 NVL and GH200 are
# taken from H100 NVL and H100 SXM, which have the same chip, and were not looked up.
# Cards and modules of one chip differ in clock and power. What is not here, such as a MIG slice, has no MFU.
A100: dict[str, Any] = {"link": 300e9, "fp8": False, "single": 19.5e12, "bus": 32e9, "network": 25e9}
KINDS = {
    "a100-40gb": Kind(40, 312e12, "A100-(SXM4|PCIE)-40GB", 1.555e12, **A100),
    "a100-80gb": Kind(80, 312e12, "A100-(SXM4|PCIE)-80GB|A100 80GB PCIe", 1.935e12, **A100),
    "h100": Kind(80, 989e12, "H100 80GB HBM3", 3.35e12, 450e9),  # SXM5
    "h100-pcie": Kind(80, 756e12, "H100 PCIe", 2.0e12, single=51e12),
    "h100-nvl": Kind(94, 835e12, "H100 NVL", 3.9e12, single=60e12),
    "h200": Kind(141, 989e12, "H200", 4.8e12, 450e9),  # SXM5
    "h200-nvl": Kind(141, 835e12, "H200 NVL", 4.8e12, single=60e12),
    # 120 and 480 GB are the processor's memory.
    "gh200": Kind(96, 989e12, "GH200 (96GB HBM3|120GB|480GB)", 4.0e12),
    "gh200-144gb": Kind(144, 989e12, "GH200 144G HBM3e", 4.9e12),
    "b200": Kind(180, 2250e12, "B200", 7.7e12, 900e9, single=75e12),
    "gb200": Kind(186, 2500e12, "GB200", 8.0e12, 900e9, single=80e12),
    "l40s": Kind(48, 362e12, "L40S", 0.864e12, single=91.6e12, bus=32e9, network=25e9),
}
# Tokens whose logits are there at once in configs for GPUs (loss_chunk), as measured on an H100 (docs/engines.md).
LOSS_CHUNK = 4096


def normalize_name(name: str) -> str:
    """`NVIDIA_H100_80GB_HBM3` → `h100-80gb-hbm3`: SLURM, its autodetection and the driver write one name differently."""
    return re.sub(r"[\s_-]+", "-", name.strip().lower()).removeprefix("nvidia-")


def with_article(gpu: str) -> str:
    """`an h100`, `a b200`."""
    return f"{'an' if gpu[0] in 'ah' else 'a'} {gpu}"


def find(name: str) -> Gpu | None:
    """The GPU of this name; None if the table has none. An `a100` alone is none: it has 40 or 80 GB."""
    for short, kind in KINDS.items():
        if normalize_name(name) == short or re.fullmatch(kind.products.lower().replace(" ", "-"), normalize_name(name)):
            return Gpu(short, kind.memory * 1e9, kind.peak)
    return None


def name_in_profile(gres: str) -> str:
    """The GPU's name in what a profile asks SLURM for: `h100` of `gpu:h100:8`; UNNAMED where it names none, "" where it asks for none."""
    for part in (gres or "").strip("'\" ").split(","):
        if match := re.match(r"(?:gres[:/])?gpu(?::([A-Za-z][\w.-]*))?(?:[:=(]|$)", part.strip()):
            return match[1] or UNNAMED
    return ""


def local_gpu_name(root: Path = DRIVER) -> str:
    """The name of this machine's first GPU, as NVIDIA's driver writes it; "" if there is none."""
    for path in sorted(root.glob("*/information")):
        match = re.search(r"^Model:\s*(.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if match:
            return match[1].strip()
    return ""


def training_gpu(plan_settings: PlanSettings, device: str, profile: str = "", root: Path = DRIVER) -> Gpu | None:
    """The GPU that training will run on; None for a CPU, whatever GPU is named. plan_settings: pretrain.plan; device:
    pretrain.train.device; profile: the GPU's name in the profile.

    Raises InputError if a GPU has no memory: one that is not in the table or has no name, without pretrain.plan.gpu_memory.
    """
    if device == "cpu":
        return None
    name = plan_settings.gpu or profile or local_gpu_name(root) or (UNNAMED if device == "cuda" else "")
    if not name:
        return None
    gpu, memory = find(name), plan_settings.gpu_memory
    if memory:
        return Gpu(gpu.name if gpu else name, memory * 1e9, gpu.peak if gpu else None)
    if gpu:
        return gpu
    remedy = f"set pretrain.plan.gpu_memory, or pretrain.plan.gpu to one of {', '.join(KINDS)}"
    if name == UNNAMED:
        why = (
            "the profile asks for a GPU without a name"
            if profile
            else "pretrain.train.device is cuda, and no GPU is named"
        )
        raise InputError(f"{why}: which one is not known; {remedy}")
    where = "the GPU of the profile" if profile else "the GPU of this machine"
    if plan_settings.gpu:
        where = "pretrain.plan.gpu"
    raise InputError(f"{where} is {name!r}, whose memory is not known: {remedy}")
