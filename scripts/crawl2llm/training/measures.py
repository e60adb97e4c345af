"""Pure measures: bits per byte, floating-point operations a token, and the share of the GPU's peak that is used."""

from __future__ import annotations

import math

from crawl2llm.training import gpus

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


def peak_of(product: str, precision: str) -> float | None:
    """The dense peak of a GPU in bf16 or fp16, which are the same, by its product's name, FLOP/s, by the table of training/gpus.py.

    fp8 has it too, so that the MFU compares with that of bf16, as in torchtitan. None if none is known: for a GPU that is not in the table,
    and for fp32.
    """
    gpu = gpus.find(product) if precision != "fp32" else None
    return gpu.peak if gpu else None


def mfu(tokens_per_second: float, flops: int, peak: float | None, devices: int) -> float | None:
    """Model FLOP utilization: operations that the model needs over the devices' peak; None without a known peak."""
    return tokens_per_second * flops / (peak * devices) if peak else None
