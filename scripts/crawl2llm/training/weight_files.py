"""The weights in a model's files, under the names and in the form that the model has here.

transformers saves some architectures otherwise than it holds them: the experts of a mixture apart, which it packs into one tensor, and some
heads under an old name (transformers/conversion_mapping.py). Its own conversion is applied here to one parameter after another:
from_pretrained applies it to a whole model, which every process would then have to hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
    revert_weight_conversion,
)

from crawl2llm.core.errors import InputError


@dataclass(frozen=True)
class StoredWeights:
    """Where the values of a model's parameters are. `model` is the model, with or without values."""

    model: PreTrainedModel
    parts: dict[str, tuple[str, ...]]  # a parameter's name → the names in the files of what it is made of
    files: dict[str, Path]

    def value(self, name: str) -> torch.Tensor:
        """A parameter, whole, fp32 on the CPU. Memory: twice that."""
        tensors = {}
        for part in self.parts[name]:
            with safe_open(self.files[part], framework="pt") as file:
                tensors[part] = file.get_tensor(part)
        value = tensors[name] if name in tensors else convert_tensors(self.model, tensors)[name]
        return value.float()


def shapes_in(file: Path, where: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a file of safetensors, by name. where: what an error begins with.

    Raises InputError for a file that is none.
    """
    try:
        with safe_open(file, framework="pt") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise InputError(f"{where}: {file.name} cannot be read ({error})") from error


def names_in_files(model: PreTrainedModel, name: str, tensor_names: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """The tensors of which a parameter or buffer of `model` is made in files that have the names `tensor_names`: their shapes by name."""
    module, _, key = name.rpartition(".")
    parameter = getattr(model.get_submodule(module), key).detach().to("meta")
    tensors = {name: parameter} if name in tensor_names else revert_weight_conversion(model, {name: parameter})
    return {part: tuple(value.shape) for part, value in tensors.items()}


def convert_tensors(model: PreTrainedModel, parts: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors of files as parameters of `model`, by their names there: transformers' conversion_mapping, as it is applied in
    core_model_loading.convert_and_load_state_dict_in_model. parts: tensors, for which add_tensor's type has a Future."""
    steps = get_model_conversion_mapping(model, add_legacy=False)
    renamings = [step for step in steps if isinstance(step, WeightRenaming)]
    converters = [step for step in steps if isinstance(step, WeightConverter)]
    by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    collected: dict[str, WeightRenaming | WeightConverter] = {}
    for part in sorted(parts, key=dot_natural_key):  # expert 10 after expert 9
        name, pattern = rename_source_key(part, renamings, converters)
        if name not in collected:
            collected[name] = WeightRenaming(part, name) if pattern is None else deepcopy(by_pattern[pattern])
        collected[name].add_tensor(name, part, pattern or part, parts[part])
    parameters = {}
    for name, step in collected.items():
        for target, value in step.convert(name, model=model, config=model.config).items():
            parameters[target] = value[0] if isinstance(value, list) else value
    return parameters
