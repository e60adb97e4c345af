"""A mean of the weights over the last steps (EMA), for validation and the model that is written (Polyak and Juditsky 1992).

After each update mean ← mean + w · (weights − mean), in fp32, with w = 1 − min(decay, (1 + step) / (10 + step)), so that the random
weights of the beginning are soon forgotten (TensorFlow's ExponentialMovingAverage with num_updates). Each process averages the part of
the fp32 weights that it holds. Here is what the engine DeepSpeed lacks for that: parts by name, their files in a checkpoint, and how they
are put together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file

EMA = "ema"  # a kind in a checkpoint's neutral form, and the folder of these files in DeepSpeed's

Part = tuple[str, int]  # name of a parameter, and where in it, flattened, the part begins
Parts = dict[Part, torch.Tensor]  # fp32, one dimension


def weight(decay: float, step: int) -> float:
    """How far the mean goes towards the weights after step 1, 2, …"""
    return 1 - min(decay, (1 + step) / (10 + step))


def masters(engine: Any) -> dict[int, torch.Tensor]:
    """The fp32 weights of a DeepSpeed engine in bf16 without ZeRO, by the `id` of their parameter."""
    low, high = engine.optimizer.fp16_groups, engine.optimizer.fp32_groups
    return {id(p): m for ps, ms in zip(low, high, strict=True) for p, m in zip(ps, ms, strict=True)}


def parts(engine: Any, stage: int, bf16: bool) -> Parts:
    """This process's part of the fp32 weights that a DeepSpeed engine moves: views of them."""
    from deepspeed.utils import safe_get_local_fp32_param

    named = dict(engine.module.named_parameters())
    if stage == 0:
        held = masters(engine) if bf16 else {}
        return {(name, 0): cast(Any, held.get(id(p), p)).detach().view(-1) for name, p in named.items()}
    found = {}
    for name, parameter in named.items():
        if stage == 3:
            size = parameter.ds_tensor.ds_numel
            first = dist.get_rank() * size
            own: Any = cast(Any, safe_get_local_fp32_param)(parameter)
            if (count := min(size, parameter.ds_numel - first)) > 0:
                found[name, first] = own.detach().view(-1)[:count]
        elif parameter._hp_mapping is not None:
            first = parameter._hp_mapping.lp_fragment_address.start
            found[name, first] = parameter._hp_mapping.get_hp_fragment().detach().view(-1)
    return found


def whole(mean: Parts, sizes: dict[str, torch.Size], shared: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, whole tensor) of parts. A collective call where they are shared out."""
    own: dict[str, list[tuple[int, torch.Tensor]]] = {}
    for (name, first), value in mean.items():
        own.setdefault(name, []).append((first, value))
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    for name, size in sizes.items():
        made = torch.zeros(size.numel(), device=device)
        for first, value in own.get(name, []):
            made[first : first + value.numel()] = value
        if shared:
            dist.all_reduce(made)
        yield name, made.view(size)


def save(mean: Parts, folder: Path, shared: bool) -> None:
    """Write this process's parts below a checkpoint's folder."""
    if shared or dist.get_rank() == 0:
        (folder / EMA).mkdir(exist_ok=True)
        held = {f"{name}:{first}": value.cpu().contiguous() for (name, first), value in mean.items()}
        save_file(held, folder / EMA / f"{dist.get_rank():05d}.safetensors")


def load(mean: Parts, folder: Path) -> None:
    """Take this process's parts from a checkpoint of any number of processes."""
    for (name, first), value in mean.items():
        read(folder, name, first, value)


def read(folder: Path, name: str, first: int, into: torch.Tensor) -> None:
    """Fill `into` with the elements from `first` on of the parameter `name`."""
    end = first + into.numel()
    for path in sorted((folder / EMA).glob("*.safetensors")):
        with safe_open(path, framework="pt") as held:
            for key in held.keys():  # noqa: SIM118 - no mapping
                whose, _, place = key.rpartition(":")
                if whose != name:
                    continue
                begins = int(place)
                piece = held.get_slice(key)
                ends = begins + piece.get_shape()[0]
                low, high = max(first, begins), min(end, ends)
                if low < high:
                    into[low - first : high - first] = piece[low - begins : high - begins].to(into.device)
