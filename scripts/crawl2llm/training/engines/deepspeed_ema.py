"""The EMA of the weights (training/ema.py) in the engine DeepSpeed, which lacks it: each process has that of its parts.

Here are their files in a checkpoint, and how parts are put together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file

from crawl2llm.training.ema import EMA

Part = tuple[str, int]  # name of a parameter, and where in it, flattened, the part begins
Parts = dict[Part, torch.Tensor]  # fp32, one dimension


def whole_tensors(parts: Parts, sizes: dict[str, torch.Size], shared: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, whole tensor) of parts. A collective call where they are shared out."""
    parts_by_name: dict[str, list[tuple[int, torch.Tensor]]] = {}
    for (name, first), value in parts.items():
        parts_by_name.setdefault(name, []).append((first, value))
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    for name, size in sizes.items():
        tensor = torch.zeros(size.numel(), device=device)
        for first, value in parts_by_name.get(name, []):
            tensor[first : first + value.numel()] = value
        if shared:
            dist.all_reduce(tensor)
        yield name, tensor.view(size)


def save(ema: Parts, folder: Path, shared: bool) -> None:
    """Write this process's parts below a checkpoint's folder."""
    if shared or dist.get_rank() == 0:
        (folder / EMA).mkdir(exist_ok=True)
        tensors = {f"{name}:{first}": value.cpu().contiguous() for (name, first), value in ema.items()}
        save_file(tensors, folder / EMA / f"{dist.get_rank():05d}.safetensors")


def load(ema: Parts, folder: Path) -> None:
    """Take this process's parts from a checkpoint of any number of processes."""
    for (name, first), value in ema.items():
        read_into(folder, name, first, value)


def read_into(folder: Path, name: str, first: int, into: torch.Tensor) -> None:
    """Fill `into` with the elements from `first` on of the parameter `name`."""
    end = first + into.numel()
    for path in sorted((folder / EMA).glob("*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            for key in tensors.keys():  # noqa: SIM118 - no mapping
                parameter, _, place = key.rpartition(":")
                if parameter != name:
                    continue
                begins = int(place)
                piece = tensors.get_slice(key)
                ends = begins + piece.get_shape()[0]
                low, high = max(first, begins), min(end, ends)
                if low < high:
                    into[low - first : high - first] = piece[low - begins : high - begins].to(into.device)
