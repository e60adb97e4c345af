"""Checkpoints of the engine torch as files: safetensors by torch.distributed.checkpoint, whose keys are `kind/NAME`.

A `state` has tensors of such keys: weights, the optimizer's of each, and the EMA of the weights if there is one. What a process has
only a part of is a DTensor, so any number of processes under any stage read what others have written.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException, HuggingFaceStorageReader
from torch.distributed.tensor import DTensor, distribute_tensor

from crawl2llm.core.errors import InputError
from crawl2llm.training import checkpoint_integrity, engine, routers
from crawl2llm.training.ema import EMA
from crawl2llm.training.engines.stream_writer import StreamWriter

State = dict[str, torch.Tensor]


def write_state(state: State, folder: Path) -> None:
    """Write a state into a folder, a part by each process. A collective call."""
    try:
        dcp.save(state, storage_writer=StreamWriter(folder))
    except CheckpointException as failed:  # which is no Exception
        raise RuntimeError(str(failed)) from failed


def read_state(state: State, all_keys: Collection[str], path: Path, folder: Path) -> bool:
    """Fill a state from the checkpoint at `path`; False if that has no EMA of the weights. A collective call.

    all_keys: the keys of all processes together. folder: the run's. Raises InputError if the checkpoint has other keys, except an EMA and
    `unsaved_biases`, which become 0.
    """
    reader = HuggingFaceStorageReader(str(path))
    stored_keys = reader.read_metadata().state_dict_metadata.keys()
    has_ema = any(map(_is_ema, stored_keys))
    both = has_ema and any(map(_is_ema, all_keys))  # else it is not compared
    expected, stored = ({key for key in keys if both or not _is_ema(key)} for keys in (all_keys, stored_keys))
    zeros = unsaved_biases(expected, stored)
    expected -= zeros
    if differing := sorted(expected ^ stored):
        raise InputError(engine.other_optimizer_text(path, f"{differing[0]} is not in both"))
    try:
        stored_state = {
            key: value for key, value in state.items() if (has_ema or not _is_ema(key)) and key not in zeros
        }
        dcp.load(stored_state, storage_reader=reader)
    except CheckpointException as failed:
        raise InputError(
            f"{path} could not be loaded: {failed}; {checkpoint_integrity.remedy(path, folder)}"
        ) from failed
    for key in zeros & state.keys():
        state[key].zero_()
    return has_ema


def unsaved_biases(names: Iterable[str], stored: Collection[str]) -> set[str]:
    """The routers' selection biases among `names`, if none is `stored`: the checkpoint is of a version that did not save them, and in
    which they stayed 0.
    """
    biases = {name for name in names if name.rpartition(".")[2] == routers.BIAS}
    return biases if biases.isdisjoint(stored) else set()


@torch.no_grad()
def adopt_tensors(state: State, names: Collection[str], neutral_form: engine.Saved, path: Path) -> bool:
    """Fill a state from the neutral form of another engine's checkpoint at `path`; False if that has no EMA of the weights.

    names: this process's parameters; a stage of a pipeline has not all. Raises InputError if the optimizer's state is of another one.
    """
    left, wants_ema = dict(state), any(map(_is_ema, state))
    for name, kinds in neutral_form:
        if name not in names:
            continue
        for kind, value in kinds.items():
            if kind == EMA and not wants_ema:
                continue
            if (tensor := left.pop(f"{kind}/{name}", None)) is None:
                raise InputError(engine.other_optimizer_text(path, f"{kind}/{name} is not in both"))
            tensor.copy_(shard_like(torch.as_tensor(value).reshape(tensor.shape), tensor))
    if missing := [key for key in left if not _is_ema(key)]:
        raise InputError(engine.other_optimizer_text(path, f"{min(missing)} is not in both"))
    return not left


def _is_ema(key: str) -> bool:
    return key.startswith(f"{EMA}/")


def shard_like(value: torch.Tensor, parameter: torch.Tensor | None) -> torch.Tensor:
    """This process's part of a whole tensor, as the parameter `parameter` has it; all if it is not sharded."""
    if not isinstance(parameter, DTensor):
        return value
    return distribute_tensor(
        value.to(parameter.device_mesh.device_type), parameter.device_mesh, parameter.placements, src_data_rank=None
    )


def saved_parameters(folder: Path, names: Iterable[str]) -> engine.Saved:
    """(name, {kind: whole tensor}) of the parameters `names` in a checkpoint of this engine, without `unsaved_biases`; needs no process
    group.
    """
    stored: dict[str, Any] = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    kinds = sorted({key.partition("/")[0] for key in stored})
    names, stored_names = list(names), {key.partition("/")[2] for key in stored}
    zeros = unsaved_biases(names, stored_names)
    names = [name for name in names if name not in zeros]
    engine.check_names(stored_names, names, folder)
    for name in names:
        keys = [key for kind in kinds if (key := f"{kind}/{name}") in stored]
        tensors: dict[str, Any] = {
            key: torch.empty(stored[key].size, dtype=stored[key].properties.dtype) for key in keys
        }
        with warnings.catch_warnings():  # that it is not distributed
            warnings.simplefilter("ignore", UserWarning)
            dcp.load(tensors, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
        yield name, {key.partition("/")[0]: value for key, value in tensors.items()}
