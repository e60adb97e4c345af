"""What the makers' data sheets say of a GPU beside its peak (training/gpus.py), and which share of it a sound one reaches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sheet:
    """memory: bytes/s; link: bytes/s of NVLink in one direction, None if cards differ; fp8: has products of eight bits, at twice the
    peak of bf16; single: FLOP/s in fp32 without tensor cores; bus: bytes/s of PCIe in one direction; network: bytes/s between nodes for
    each GPU.
    """

    memory: float
    link: float | None = None
    fp8: bool = False
    single: float = 67e12
    bus: float = 64e9
    network: float = 50e9


# nvidia.com/en-us/data-center: A100, H100, H200, GH200, HGX B200, GB200 and L40S. NVLink's figure is of both directions: half of it, as of
# PCIe's. Networks are those of NVIDIA's own nodes (DGX A100: 200 Gb/s for each GPU, DGX H100, H200 and B200: 400 Gb/s); an L40S has what
# its buyer puts beside it, taken as an A100's.
SHEETS = {
    "a100-40gb": Sheet(1.555e12, 300e9, single=19.5e12, bus=32e9, network=25e9),
    "a100-80gb": Sheet(1.935e12, 300e9, single=19.5e12, bus=32e9, network=25e9),
    "h100": Sheet(3.35e12, 450e9, fp8=True),
    "h100-pcie": Sheet(2.0e12, None, fp8=True, single=51e12),
    "h100-nvl": Sheet(3.9e12, None, fp8=True, single=60e12),
    "h200": Sheet(4.8e12, 450e9, fp8=True),
    "h200-nvl": Sheet(4.8e12, None, fp8=True, single=60e12),
    "gh200": Sheet(4.0e12, None, fp8=True),
    "gh200-144gb": Sheet(4.9e12, None, fp8=True),
    "b200": Sheet(7.7e12, 900e9, fp8=True, single=75e12),
    "gb200": Sheet(8.0e12, 900e9, fp8=True, single=80e12),
    "l40s": Sheet(0.864e12, None, fp8=True, single=91.6e12, bus=32e9, network=25e9),
}
# What a sound GPU reaches at least, as shares of the data sheet. An H100 SXM was measured at 0.81, 0.90 (docs/commands/gpu-check.md).
PRODUCT_SHARE, FP8_SHARE, COPY_SHARE, LINK_SHARE = 0.70, 0.55, 0.80, 0.60
