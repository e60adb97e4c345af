"""Initial weights, one block of the model after another, so that no process has to hold the whole of them.

A block is a decoder layer, or a module outside of these (embedding, last norm, head). Its random numbers depend on the seed and
its name alone, so a parameter is the same in every engine, under every sharding and for any number of processes. How they are
distributed is the architecture's own `_init_weights` in transformers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel

from crawl2llm.core.errors import InputError
from crawl2llm.training.model_loading import SEQUENCE_CLASSIFICATION

Weights = Iterator[tuple[str, torch.Tensor]]  # name of a parameter or buffer, as transformers has it; its value


def is_reward_config(config: PreTrainedConfig) -> bool:
    """Whether a configuration is of a model that gives a text a score: a reward model, and no language model."""
    return any(name.endswith(SEQUENCE_CLASSIFICATION) for name in config.architectures or ())


def empty_model(config: PreTrainedConfig, device: str = "meta") -> PreTrainedModel:
    """A model in fp32, by default without values and memory: on the meta device. A language model, or what `is_reward_config` says."""
    kind = AutoModelForSequenceClassification if is_reward_config(config) else AutoModelForCausalLM
    with torch.device(device):
        model = kind.from_config(config, trust_remote_code=False, dtype=torch.float32)
    model.config.use_cache = False
    return model


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The decoder layers, in order: what stands in a list of modules, but in no other such list."""
    return [module for _, module, is_whole in _model_parts(model, "") if is_whole and any(module.children())]


def _model_parts(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module, bool]]:
    """(name, module, whether with all below it) of each block, and of the modules around them, from the inside out."""
    for key, child in module.named_children():
        path = f"{name}.{key}".lstrip(".")
        if isinstance(module, nn.ModuleList) or not any(child.children()):
            yield path, child, True
        else:
            yield from _model_parts(child, path)
    yield name, module, False


@torch.no_grad()
def random_weights(config: PreTrainedConfig, seed: int) -> Weights:
    """Each parameter and buffer of a model by its name, fp32 on the CPU; a tied one once. Memory: one block.

    Raises InputError for an architecture that does not set its weights block by block.
    """
    model = empty_model(config)
    known_names = {name for name, _ in chain(model.named_parameters(), model.named_buffers())}
    for name, module, is_whole in _model_parts(model, ""):
        if isinstance(module, nn.ModuleList):
            continue
        around = [] if is_whole else [(path, value) for path, value in _named_tensors(module) if "." in path]
        versions = [value._version for _, value in around]
        module.to_empty(device="cpu", recurse=is_whole)
        own_tensors = [(path, value) for path, value in _named_tensors(module) if is_whole or "." not in path]
        _set_tensors(model, module, own_tensors, name, seed, is_whole)
        if touched := [path for (path, value), old in zip(around, versions, strict=True) if value._version != old]:
            raise InputError(
                f"pretrain.train.model.type {config.model_type!r}: transformers sets {touched[0]} from {name or 'the top'}, and not "
                "where it stands, so that its initial weights cannot be made block by block"
            )
        for path, value in own_tensors:
            if (full := f"{name}.{path}".lstrip(".")) in known_names:
                yield full, value
        module.to_empty(device="meta", recurse=is_whole)


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def _set_tensors(
    model: PreTrainedModel,
    module: nn.Module,
    tensors: list[tuple[str, torch.Tensor]],
    name: str,
    seed: int,
    is_whole: bool,
) -> None:
    """Fill a part's tensors by the architecture's rule, and with torch's own where that has none, as the constructor does."""

    import xxhash  # only here: gpu-check fills models without it

    def fill_tensors(again: bool) -> list[str]:
        for _, value in tensors:
            value.fill_(float("nan") if value.is_floating_point() else 0)
        versions = [value._version for _, value in tensors]
        torch.manual_seed(xxhash.xxh3_64_intdigest(f"weights\x1f{name}".encode(), seed=seed))
        modules: Iterable[nn.Module] = [*module.modules()] if is_whole else [module]
        for submodule in modules if again else ():
            if callable(reset := getattr(submodule, "reset_parameters", None)):
                reset()
        if is_whole:
            module.apply(model._init_weights)
        else:
            model._init_weights(module)
        return [
            path
            for (path, value), old in zip(tensors, versions, strict=True)
            if (value.isnan().any() if value.is_floating_point() else value._version == old)
        ]

    if fill_tensors(again=False) and (left := fill_tensors(again=True)):
        raise InputError(
            f"pretrain.train.model.type {model.config.model_type!r}: neither transformers nor torch says what {name}.{left[0]} begins with"
        )


def fill_model(model: PreTrainedModel, device: torch.device, weights: Weights) -> PreTrainedModel:
    """An empty model on `device` with the values `weights`, each copied where it belongs."""
    model.to_empty(device=device)
    model.tie_weights()
    left = dict(_named_tensors(model))
    with torch.no_grad():
        for name, value in weights:
            left.pop(name).copy_(value)
    if left:
        raise RuntimeError(f"no value was given for {', '.join(left)}")
    return model
