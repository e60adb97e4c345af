"""The numbers that weights are rounded to by compress.quantize: a weight → the nearest that its method can store, fp32.

Each takes the weights of a linear layer, [outputs, inputs], and gives as many. Rounding what was rounded changes nothing but the last
digits.
"""

from __future__ import annotations

from functools import cache

import torch

from scripts.compress.layers import BLOCK

LARGEST = 127  # of int8
HALF_RANGE = 7.5  # of four bits, -8 to 7: half of the distance (compressed_tensors/quantization/utils/helpers.py, calculate_qparams)


def int8(weight: torch.Tensor) -> torch.Tensor:
    """A scale for each row, whose largest weight is 127 (arXiv:2208.07339, section 2.1). bitsandbytes takes weights as fp16 first."""
    value = weight.half().float()
    scale = value.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / LARGEST
    return torch.round(value / scale) * scale


def nf4(weight: torch.Tensor) -> torch.Tensor:
    """Sixteen quantiles of a normal distribution times the largest of each 64 weights (arXiv:2305.14314, section 3)."""
    blocks = weight.float().reshape(-1, BLOCK)
    scale = blocks.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    values, borders = (one.to(weight.device) for one in _normal())
    return (values[torch.bucketize((blocks / scale).contiguous(), borders)] * scale).reshape(weight.shape)


@cache
def _normal() -> tuple[torch.Tensor, torch.Tensor]:
    """(the values of NF4 in their order [16], the middles between neighbours [15]), as bitsandbytes has them."""
    from bitsandbytes.functional import get_4bit_type

    values = get_4bit_type("nf4", device="cpu").sort().values
    return values, (values[1:] + values[:-1]) / 2


def int4(weight: torch.Tensor, group: int) -> torch.Tensor:
    """The symmetric grid of GPTQ, from -8 to 7 times a scale for each `group` weights of a row, without what GPTQ does beside rounding."""
    groups = weight.float().unflatten(1, (-1, group))
    scale = groups.abs().amax(2, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / HALF_RANGE
    return (torch.round(groups / scale).clamp(-8, 7) * scale).flatten(1)
