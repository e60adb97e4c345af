"""Low-rank adapters in the place of a full fine-tuning: LoRA (https://arxiv.org/abs/2106.09685), by PEFT.

Every weight of the model that is made from stays as it is, and each linear layer W of the decoder gets two small matrices that are
trained: W + alpha/rank × B A, with A [rank, inputs] random and B [outputs, rank] 0 at first. `qlora` keeps W in four bits
(https://arxiv.org/abs/2305.14314). The engine holds the model with PEFT's layers in it; what comes out is both the
adapter, in PEFT's own files, and the model with the products added to its weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors.torch import save_file
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from crawl2llm.core.errors import InputError
from crawl2llm.training import initial
from crawl2llm.training.engine_settings import EngineSettings

FOLDER = "adapter"  # beside the model's
NAME = "default"  # PEFT's name of a model's only adapter
BASE, DOWN, UP = ".base_layer.", f".lora_A.{NAME}.weight", f".lora_B.{NAME}.weight"


def is_used(settings: EngineSettings) -> bool:
    """Whether an adapter is trained, and not the model itself."""
    return bool(settings.adapter != "none")


def lora_config(settings: EngineSettings) -> Any:
    """PEFT's configuration of an adapter. Without dropout, as all training here."""
    from peft import LoraConfig

    targets = list(settings.adapter_targets) or "all-linear"  # but for the head
    return LoraConfig(
        r=settings.adapter_rank,
        lora_alpha=settings.adapter_alpha,  # type: ignore[arg-type]  # PEFT takes any number
        target_modules=targets,
        task_type="CAUSAL_LM",
    )


def empty_model(config: PreTrainedConfig, settings: EngineSettings, where: str) -> PreTrainedModel:
    """A model on the meta device with an adapter in it, whose own matrices alone want a gradient.

    Raises InputError if `adapter_targets` names no linear layer of this architecture, or one whose weight is another module's too.
    """
    from peft import inject_adapter_in_model

    model = initial.empty_model(config)
    linear = sorted({name.rpartition(".")[2] for name, module in model.named_modules() if _is_linear(module)})
    if unknown := [name for name in settings.adapter_targets if name not in linear]:
        raise InputError(
            f"{where}.adapter_targets: the architecture {config.model_type!r} has no linear layer {unknown[0]!r}; it has "
            f"{', '.join(linear)}"
        )
    shared: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        shared.setdefault(id(parameter), []).append(name.rpartition(".")[0])
    for modules in shared.values():
        for module in modules if len(modules) > 1 else ():
            if (target := module.rpartition(".")[2]) in settings.adapter_targets:
                tied_module = next(name for name in modules if name != module)
                raise InputError(
                    f"{where}.adapter_targets: the weight of {target!r} is that of {tied_module} too in this model (tie_embeddings), and "
                    f"what an adapter adds to it would be added to both; leave {target!r} out"
                )
    inject_adapter_in_model(lora_config(settings), model, low_cpu_mem_usage=True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith((DOWN, UP)))
    return model


def _is_linear(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Linear | Conv1D)  # the latter is GPT-2's


def weights_with_adapter(model: PreTrainedModel, weights: initial.Weights, seed: int) -> initial.Weights:
    """`weights`, of the model without an adapter, by the names that it has in one, then the adapter's own matrices.

    Those depend on the seed and the layer's name alone: A as PEFT begins it (tuners/lora/layer.py, reset_lora_parameters: Kaiming's
    uniform with a = √5), B 0. model: of `empty`.
    """
    parameters = dict(model.named_parameters())
    for name, value in weights:
        stem, _, leaf = name.rpartition(".")
        inside = f"{stem}{BASE}{leaf}"
        yield inside if inside in parameters else name, value
    for name, parameter in parameters.items():
        if name.endswith(UP):
            yield name, torch.zeros(parameter.shape)
        elif name.endswith(DOWN):
            seeded = torch.Generator().manual_seed(xxhash.xxh3_64_intdigest(f"adapter\x1f{name}".encode(), seed=seed))
            value = torch.empty(parameter.shape)
            torch.nn.init.kaiming_uniform_(value, a=math.sqrt(5), generator=seeded)
            yield name, value


def build_weights_with_adapter(
    build_model: Callable[[], PreTrainedModel], build_weights: Callable[[], initial.Weights], seed: int
) -> initial.Weights:
    """`weights_with_adapter` of the functions that give them."""
    return weights_with_adapter(build_model(), build_weights(), seed)


def fill_quantized_model(model: PreTrainedModel, device: torch.device, weights: initial.Weights) -> PreTrainedModel:
    """As `initial.fill_model`, with the weights that get an adapter in four bits: NF4 with double quantization.

    One weight after another, so that on `device` they are never there in fp32. Raises InputError for layers that are no nn.Linear.
    """
    from bitsandbytes import nn as low

    layers = {f"{name}.weight": module for name, module in model.named_modules() if f"{name}.".endswith(BASE)}
    for module in layers.values():
        if not isinstance(module, torch.nn.Linear):
            raise InputError(
                f"adapter is qlora, and the layers of {model.config.model_type!r} are of the class {type(module).__name__}, which is not "
                "kept in four bits: set it to lora"
            )
        if module.bias is not None:
            module.bias = torch.nn.Parameter(torch.empty(module.bias.shape, device=device), requires_grad=False)
    other_modules = [module for module in model.modules() if all(module is not layer for layer in layers.values())]
    for module in other_modules:
        module.to_empty(device=device, recurse=False)
    model.tie_weights()
    left = {name: value for name, value in chain(model.named_parameters(), model.named_buffers()) if name not in layers}
    with torch.no_grad():
        for name, value in weights:
            if name not in layers:
                left.pop(name).copy_(value)
                continue
            outputs, inputs = value.shape
            layer = low.Linear4bit(
                inputs, outputs, bias=False, compute_dtype=torch.float32, quant_type="nf4", device="meta"
            )
            layer.weight = low.Params4bit(
                value.clone(), requires_grad=False, quant_type="nf4", compress_statistics=True
            )
            layer.bias = layers[name].bias
            # bitsandbytes would repack the weight for bf16 at the first evaluation, for good: what follows is rounded otherwise.
            layer.support_avx512bf16_for_cpu = False
            parent, _, leaf = name.removesuffix(".weight").rpartition(".")
            setattr(model.get_submodule(parent), leaf, layer.to(device))
    if left:
        raise RuntimeError(f"no value was given for {', '.join(left)}")
    return model


@contextmanager
def without_adapter(model: PreTrainedModel) -> Iterator[None]:
    """Compute as the model that is made from, without the adapter; for passes without a gradient."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers: list[Any] = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:  # PEFT's own switch would also stop their training
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def count_trained_parameters(model: PreTrainedModel) -> int:
    """How many parameters are trained."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def merged_weights(
    tensors: Mapping[str, torch.Tensor], settings: EngineSettings, model: PreTrainedModel
) -> dict[str, torch.Tensor]:
    """The model's own weights by their own names, fp32, with each product of an adapter's matrices added to its layer's weight.

    model: of `empty_model`. Its layers say which way round a weight is: a square one does not show it.
    """
    scale = settings.adapter_alpha / settings.adapter_rank
    weights = {name.replace(BASE, "."): value for name, value in tensors.items() if not name.endswith((DOWN, UP))}
    for name, down in tensors.items():
        if name.endswith(DOWN):
            stem = name.removesuffix(DOWN)
            product = scale * (tensors[stem + UP] @ down)
            straight = isinstance(model.get_submodule(stem + BASE.rstrip(".")), torch.nn.Linear)
            weights[f"{stem}.weight"] = weights[f"{stem}.weight"] + (product if straight else product.T)
    return weights


def write(tensors: Mapping[str, torch.Tensor], settings: EngineSettings, folder: Path) -> list[Path]:
    """Write the adapter alone as PEFT does, so that `PeftModel.from_pretrained` puts it into the model that was made from; its files."""
    folder.mkdir(exist_ok=True)
    adapter_tensors = {
        f"base_model.model.{name.replace(f'.{NAME}.', '.')}": value.contiguous()
        for name, value in tensors.items()
        if name.endswith((DOWN, UP))
    }
    peft_config = lora_config(settings)
    peft_config.inference_mode = True
    peft_config.target_modules = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in adapter_tensors})
    peft_config.save_pretrained(str(folder))
    save_file(adapter_tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return sorted(folder.iterdir())
