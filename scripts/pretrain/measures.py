"""Pure measures: bits per byte, floating-point operations a token, and the share of the GPU's peak that is used."""

from __future__ import annotations

import math
import re

# Dense bf16 FLOP/s by the product's whole name, as the driver gives it. NVIDIA's data sheets (nvidia.com/en-us/data-center:
# A100, H100, H200, GH200 Grace Hopper, HGX B200 and GB200 NVL72); where a sheet has the figure with sparsity, half of it.
# H100 PCIe and NVL are those of torchtitan too (torchtitan/tools/utils.py); H200 NVL and GH200 are taken from H100 NVL and H100 SXM,
# which have the same chip, and were not looked up. Cards and modules of one chip differ in clock and power. What is not here, such as a
# MIG slice, has no MFU.
PEAK = {
    r"A100-(SXM4|PCIE)-(40|80)GB|A100 80GB PCIe": 312e12,
    r"H100 80GB HBM3": 989e12,  # SXM5
    r"H100 PCIe": 756e12,
    r"H100 NVL": 835e12,
    r"H200": 989e12,  # SXM5
    r"H200 NVL": 835e12,
    r"GH200 (96GB HBM3|120GB|144G HBM3e|480GB)": 989e12,
    r"B200": 2250e12,
    r"GB200": 2500e12,
}
MFU_ALARM = 0.75  # above it, the peak, the clock or the count of operations is wrong


def bits_per_byte(nats: float, size: int) -> float:
    """Total negative log-likelihood in bits over the bytes of the text: nats / ln 2 / bytes.

    nats: summed over every token of the scored documents, their end-of-text tokens included.
    size: UTF-8 bytes of the text of exactly these documents (the end-of-text token has none).
    Independent of the tokenizer, unlike the loss a token (Gao et al. 2020, https://arxiv.org/abs/2101.00027, section 3.1).
    """
    return nats / math.log(2) / size


def flops_per_token(matmul_parameters: int, layers: int, hidden: int, context: int) -> int:
    """Floating-point operations of forward and backward a token: 6N + 12 · L · H · T.

    Chowdhery et al. 2022 (PaLM), https://arxiv.org/abs/2204.02311, appendix B; H is heads × head size, and N counts the parameters
    that are multiplied (the output embedding is, the input embedding is looked up). Recomputation is not counted.
    """
    return 6 * matmul_parameters + 12 * layers * hidden * context


def peak_flops(device: str) -> float | None:
    """The dense bf16 peak of a GPU by its name, FLOP/s; None for one that is not in the table."""
    found = device.removeprefix("NVIDIA ")
    return next((peak for name, peak in PEAK.items() if re.fullmatch(name, found)), None)


def mfu(tokens_per_second: float, flops: int, peak: float | None, devices: int) -> float | None:
    """Model FLOP utilization: operations that the model needs over the devices' peak; None without a known peak."""
    return tokens_per_second * flops / (peak * devices) if peak else None
