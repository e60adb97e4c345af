"""DeepSpeed's checkpoints as files: read without pickles of unknown types, put together for other processes, and as whole tensors.

Under ZeRO each process has written its part. What puts the parts together, `convert_to_universal`, is DeepSpeed's own conversion
(https://arxiv.org/abs/2406.18820), run by process 0 alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from crawl2llm.core.console import log
from crawl2llm.core.errors import InputError
from crawl2llm.training import engine
from crawl2llm.training.ema import EMA
from crawl2llm.training.engines import deepspeed_ema, deepspeed_load

if TYPE_CHECKING:
    from crawl2llm.training.checkpoint import Checkpoint

# In a checkpoint without ZeRO: the names of each group's parameters, in the optimizer's order.
ORDER = "crawl2llm_order"
MODEL = "mp_rank_00_model_states.pt"
STATE = (deepspeed_load.STEP, *engine.MOMENTS, *engine.MOMENTUM)


def restrict_unpickling() -> None:
    """Have every torch.load of this process, DeepSpeed's included, refuse anything but tensors and known types."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    torch.serialization.add_safe_globals([DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address])


def convert_to_universal(checkpoint: Checkpoint, folder: Path) -> Path:
    """A copy of a checkpoint of ZeRO 1–3 that any number of processes can load, in `folder`. A collective call.

    It has a folder for each parameter, `zero/NAME`, with fp32 weights and optimizer state, whole. Peak memory of process 0: one
    parameter with its state, and the model's own file.
    """
    target = folder / f".{checkpoint.path.name}.universal"
    if not dist.is_initialized() or dist.get_rank() == 0:
        from deepspeed.checkpoint import ds_to_universal

        log.info("%s was saved by %d processes: converting", checkpoint.path, checkpoint.processes)
        shutil.rmtree(target, ignore_errors=True)
        options = argparse.Namespace(
            input_folder=str(checkpoint.path),
            output_folder=str(target),
            num_extract_workers=1,  # in this process, where torch.load is restricted
            num_merge_workers=1,
            keep_temp_folder=False,
            strict=True,
            inject_missing_state=checkpoint.zero_stage < 3,
        )
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            ds_to_universal.main(options)
    if dist.is_initialized():
        dist.barrier()
    return target


def saved_parameters(checkpoint: Checkpoint, names: Iterable[str], folder: Path) -> engine.Saved:
    """(name, {kind: whole tensor}) of the parameters `names` in a checkpoint of this engine. A collective call, where processes have met.

    folder: for a copy of ZeRO's parts put together, which is removed at the end. Raises InputError for one that does not say enough.
    """
    for name, kinds in _saved_without_ema(checkpoint, names, folder):
        if (checkpoint.path / EMA).is_dir():
            ema = torch.empty(kinds[engine.WEIGHT].numel())
            deepspeed_ema.read_into(checkpoint.path, name, 0, ema)
            kinds = {**kinds, EMA: ema.view(kinds[engine.WEIGHT].shape)}
        yield name, kinds


def _saved_without_ema(checkpoint: Checkpoint, names: Iterable[str], folder: Path) -> engine.Saved:
    """As `saved_parameters`, without the EMA of the weights."""
    restrict_unpickling()
    names = list(names)
    if checkpoint.zero_stage:
        file = min(checkpoint.path.glob("*model_states.pt"))
        shapes = torch.load(file, weights_only=True, map_location="cpu", mmap=True)["param_shapes"]
        engine.check_names(chain(*shapes), names, checkpoint.path)
        path = convert_to_universal(checkpoint, folder)
        common = {}
        if checkpoint.zero_stage == 3:  # whose parameters have one step count
            stored = torch.load(path / "zero/optimizer_state.pt", weights_only=True, map_location="cpu", mmap=True)
            common = {"step": stored["optimizer_state_dict"]["state"][0]["step"]}
        for name in names:  # of tied weights there is a folder for each name
            files = (path / "zero" / name).glob("*.pt")
            parts = {file.stem: torch.load(file, weights_only=True, map_location="cpu") for file in files}
            tensors = {kind: part["param"] if isinstance(part, dict) else part for kind, part in parts.items()}
            state = {kind: value for kind, value in tensors.items() if kind in STATE}
            yield name, {engine.WEIGHT: tensors["fp32"], **common, **state}
        if dist.is_initialized():
            dist.barrier()
        shutil.rmtree(path, ignore_errors=True)
        return
    stored = torch.load(checkpoint.path / MODEL, weights_only=True, map_location="cpu", mmap=True)
    if not stored.get(ORDER):
        raise InputError(
            f"{checkpoint.path} was written by an earlier version, which did not say whose the optimizer's state is"
        )
    inner = stored["optimizer"]
    engine.check_names(chain(*stored[ORDER]), names, checkpoint.path)
    order, states = list(chain(*stored[ORDER])), inner.get("optimizer_state_dict", inner)["state"]
    masters = [*chain(*inner["fp32_groups"])] if "fp32_groups" in inner else [stored["module"][name] for name in order]
    for name in names:
        place = order.index(name)
        state = {kind: value for kind, value in states.get(place, {}).items() if kind in STATE}
        yield name, {engine.WEIGHT: masters[place].detach(), **state}
