"""Quantization-aware fine-tuning: the forward pass multiplies with weights that are rounded as compress.quantize will round them.

The gradient passes the rounding as if it were not there (the straight-through estimator, arXiv:1308.3432, section 4; for quantization
arXiv:1712.05877, section 3), and the optimizer moves the weights behind it, in fp32. So the training sees the loss of the quantized
model, and finds weights that lose little when they are rounded. What comes out are the weights behind, which the same method quantizes to
those that were trained with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from crawl2llm.core.errors import InputError
from crawl2llm.training import quantization_grids
from crawl2llm.training.compressible_layers import Layer, is_quantizable, no_fitting_layer_text
from crawl2llm.training.engine_settings import EngineSettings
from crawl2llm.training.quantize_aware import is_quantize_aware


class StraightThrough(torch.autograd.Function):
    """A function of weights, whose gradient is that of the weights themselves."""

    @staticmethod
    def forward(_: Any, weight: torch.Tensor, rounded: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """rounded(weight), of the same shape."""
        return rounded(weight).to(weight.dtype)

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The gradient as it comes."""
        return gradients[0], None


def weight_rounder(settings: EngineSettings) -> Callable[[torch.Tensor], torch.Tensor]:
    """What rounds a layer's weights, [outputs, inputs], by `quantize_aware`."""
    if settings.quantize_aware == "int4":
        return partial(quantization_grids.round_int4, group=settings.quantize_aware_group_size)
    return quantization_grids.round_int8 if settings.quantize_aware == "int8" else quantization_grids.round_nf4


def round_linear_layers(model: nn.Module, settings: EngineSettings, where: str) -> int:
    """Have each linear layer that compress.quantize would take multiply with rounded weights from now on; how many.

    0 if `quantize_aware` is none. Raises InputError if no layer has a shape that the method takes.
    """
    if not is_quantize_aware(settings):
        return 0
    rounded, head = weight_rounder(settings), model.get_output_embeddings()  # type: ignore[operator]
    method, group_size = settings.quantize_aware, settings.quantize_aware_group_size
    inner = [(name, part) for name, part in model.named_modules() if type(part) is nn.Linear and part is not head]
    shapes = {name: Layer(name, part.in_features, part.out_features) for name, part in inner}
    rounded_layers = [part for name, part in inner if is_quantizable(shapes[name], method, group_size)]
    if not rounded_layers:
        first = next(iter(shapes.values()), None)
        why = no_fitting_layer_text(first, method, group_size) if first else "the model has no linear layer"
        raise InputError(f"{where}.quantize_aware is {method!r}; of compress.quantize {why}")

    def forward(part: nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(inputs, StraightThrough.apply(part.weight, rounded), part.bias)

    for part in rounded_layers:
        part.forward = partial(forward, part)  # type: ignore[method-assign]
    return len(rounded_layers)
