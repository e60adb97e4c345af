"""The mean of the weights (training/average.py) in the engine DeepSpeed, which lacks it: each process has that of its parts.

Here are their files in a checkpoint, and how parts are put together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file

from crawl2llm.training.average import EMA

Part = tuple[str, int]  # name of a parameter, and where in it, flattened, the part begins
Parts = dict[Part, torch.Tensor]  # fp32, one dimension


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
