"""The numbers that weights are rounded to by compress.quantize: a weight → the nearest that its method can store, fp32, with scales in
fp32; compress.quantize stores those of four even bits in bf16 where `rest` is bf16.

Each takes the weights of a linear layer, [outputs, inputs], and gives as many. Rounding what was rounded changes nothing but the last
digits.
"""

from __future__ import annotations

from functools import cache

import torch

from crawl2llm.training.quantized_sizes import BLOCK

LARGEST = 127  # of int8
SMALLEST = 1e-12  # scale, of rows that are zero
HALF_RANGE = 7.5  # of four bits, -8 to 7: half of the distance (compressed_tensors/quantization/utils/helpers.py, calculate_qparams)


def round_int8(weight: torch.Tensor) -> torch.Tensor:
    """A scale for each row, whose largest weight is 127 (arXiv:2208.07339, section 2.1). bitsandbytes takes weights as fp16 first."""
    value = weight.half().float()
    most = value.abs().amax(1, keepdim=True).clamp_min(SMALLEST)
    return torch.round(value * (LARGEST / most)) * (most / LARGEST)


def round_nf4(weight: torch.Tensor) -> torch.Tensor:
    """Sixteen quantiles of a normal distribution times the largest of each 64 weights (arXiv:2305.14314, section 3)."""
    blocks = weight.float().reshape(-1, BLOCK)
    scale = blocks.abs().amax(1, keepdim=True).clamp_min(SMALLEST)
    values, borders = (level.to(weight.device) for level in _nf4_levels())
    return (values[torch.bucketize((blocks / scale).contiguous(), borders)] * scale).reshape(weight.shape)


@cache
def _nf4_levels() -> tuple[torch.Tensor, torch.Tensor]:
    """(the values of NF4 in their order [16], the middles between neighbours [15]), as bitsandbytes has them."""
    from bitsandbytes.functional import get_4bit_type

    values = get_4bit_type("nf4", device="cpu").sort().values
    return values, (values[1:] + values[:-1]) / 2


def round_int4(
    weight: torch.Tensor, group: int, symmetric: bool = True, stored: torch.dtype = torch.float32
) -> torch.Tensor:
    """The grids of GPTQ and, not symmetric, of AWQ, without what these do beside rounding: -8 to 7, less a zero point, times a scale.

    Each `group` weights of a row have a scale of their own, and a zero point. stored: type of the scales that the numbers are
    multiplied with.
    """
    if symmetric:
        numbers, scale = int4_numbers(weight, group)
        return (numbers * scale.to(stored).float().unsqueeze(2)).flatten(1)
    groups = weight.float().unflatten(1, (-1, group))
    low, high = groups.amin(2, keepdim=True).clamp_max(0), groups.amax(2, keepdim=True).clamp_min(0)
    scale = (high - low).clamp_min(SMALLEST) / (2 * HALF_RANGE)
    zero = torch.round((-8 - low / scale).clamp(-8, 7))
    return ((torch.round(groups / scale + zero).clamp(-8, 7) - zero) * scale.to(stored).float()).flatten(1)


def int4_numbers(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(numbers from -8 to 7, fp32 [outputs, groups, group], scales, fp32 [outputs, groups]) of weights on the symmetric grid."""
    groups = weight.float().unflatten(1, (-1, group))
    scale = groups.abs().amax(2).clamp_min(SMALLEST) / HALF_RANGE
    return torch.round(groups / scale.unsqueeze(2)).clamp(-8, 7), scale
