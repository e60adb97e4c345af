"""The linear layers of a model: which can be quantized, and how far a quantized one is from what it was."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers.pytorch_utils import Conv1D

from crawl2llm.chain.model_registry import QUANTIZE_STEP
from crawl2llm.core.errors import InputError
from crawl2llm.training import initial
from crawl2llm.training.quantized_sizes import BLOCK, GROUPS, ROWS


@dataclass(frozen=True)
class Layer:
    """A linear layer: its name, inputs and outputs; transposed: the matrix is inputs × outputs, as in GPT-2. output: gives the logits."""

    name: str
    inputs: int
    outputs: int
    transposed: bool = False
    output: bool = False

    @property
    def weight_count(self) -> int:
        """How many weights it has."""
        return self.inputs * self.outputs


def linear_layers(config: Any) -> list[Layer]:
    """The linear layers of a model of this configuration of transformers, in its order; no memory is taken for weights."""
    model = initial.empty_model(config)
    head = model.get_output_embeddings()
    layers = []
    for name, module in model.named_modules():
        if type(module) is nn.Linear:
            layers.append(Layer(name, module.in_features, module.out_features, output=module is head))
        elif isinstance(module, Conv1D):
            layers.append(Layer(name, module.weight.shape[0], module.weight.shape[1], transposed=True))
    return layers


def weight_bytes(folder: Path) -> int:
    """Bytes of a model's weights on the disk."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def layers_to_quantize(layers: list[Layer], method: str, group_size: int, keep: Sequence[str]) -> list[Layer]:
    """The layers that compress.quantize quantizes by a method, `group_size` and `keep`: not the output layer, not what `keep` matches.

    With nf4 only those whose shape its kernels take everywhere, with int4, gptq and awq those whose rows are whole groups. Raises
    InputError if `keep` matches nothing, or none is left.
    """
    where = QUANTIZE_STEP
    inner = [layer for layer in layers if not layer.output]
    for pattern in keep:
        try:
            matches = any(re.search(pattern, layer.name) for layer in inner)
        except re.error as wrong:
            raise InputError(f"{where}.keep has {pattern!r}, which is not a regular expression: {wrong}") from wrong
        if not matches:
            examples = ", ".join(layer.name for layer in inner[:3])
            raise InputError(
                f"{where}.keep has {pattern!r}, which no linear layer is called by; they are called {examples}, …"
            )
    left = [layer for layer in inner if not any(re.search(pattern, layer.name) for pattern in keep)]
    fitting = [layer for layer in left if is_quantizable(layer, method, group_size)]
    if not fitting and left:
        raise InputError(f"{where}.{no_fitting_layer_text(left[0], method, group_size)}")
    if not fitting:
        why = f"{where}.keep matches every linear layer" if inner else "the model has no linear layer"
        raise InputError(f"{why}: nothing is left to quantize")
    return fitting


def is_quantizable(layer: Layer, method: str, group_size: int) -> bool:
    """Whether a method takes a layer of this shape."""
    if method == "nf4":
        return layer.inputs % BLOCK == 0 and layer.outputs % ROWS == 0
    return method == "int8" or layer.inputs % group_size == 0


def no_fitting_layer_text(layer: Layer, method: str, group_size: int) -> str:
    """What to say of a model none of whose layers has a shape that the method takes, of which this is one."""
    if method == "nf4":
        return (
            f"method is 'nf4', which takes layers whose inputs are a multiple of {BLOCK} and whose outputs are one of {ROWS}; "
            f"this model has none ({layer.name}: {layer.inputs} and {layer.outputs}): take int8"
        )
    smaller = [str(size) for size in GROUPS if size < group_size and layer.inputs % size == 0]
    return (
        f"group_size is {group_size}, and no layer of this model has inputs in a multiple of it ({layer.name}: {layer.inputs}): take "
        f"{' or '.join(smaller) or 'int8'}"
    )


def quantization_error(model: Any, source: Path, layer: Layer) -> tuple[float, float]:
    """(sum of the squares of a layer's weights, of their differences to those of the quantized model).

    source: the folder of the model before.
    """
    key = f"{layer.name}.weight"
    for file in sorted(source.glob("*.safetensors")):
        with safe_open(file, "pt") as reader:
            if key in reader.keys():  # noqa: SIM118
                before = reader.get_tensor(key).float()
                break
    else:
        raise InputError(f"{source}: no tensor {key} in its safetensors")
    after = dequantized_weights(model.get_submodule(layer.name))
    if layer.transposed:
        before = before.T
    return float(before.double().square().sum()), float((before - after).double().square().sum())


def dequantized_weights(module: Any) -> torch.Tensor:
    """The weights of a layer in fp32, outputs × inputs: of bitsandbytes, or of floating-point numbers."""
    weight = module.weight
    if weight.is_floating_point():
        return torch.as_tensor(weight.data).float()
    import bitsandbytes

    if hasattr(weight, "quant_state") and weight.quant_state is not None:
        return bitsandbytes.functional.dequantize_4bit(weight.data, weight.quant_state).float()
    return bitsandbytes.functional.int8_vectorwise_dequant(weight.data, weight.SCB).float()
