"""Models as files of safetensors, read and written tensor by tensor, so that no model is ever in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from crawl2llm.core.errors import InputError
from crawl2llm.training.weight_files import shapes_in


@dataclass(frozen=True)
class ModelFiles:
    """The tensors of a model: of each the file that it is in, and its shape. A weight that is tied to another is in no file."""

    folder: Path
    files: dict[str, Path]
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def read(cls, folder: Path) -> ModelFiles:
        """Those in a folder. Raises InputError for a file that cannot be read."""
        files, shapes = dict[str, Path](), dict[str, tuple[int, ...]]()
        for file in sorted(folder.glob("*.safetensors")):
            file_shapes = shapes_in(file, str(folder))
            files, shapes = files | dict.fromkeys(file_shapes, file), shapes | file_shapes
        return cls(folder, files, shapes)

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor as it is stored; the file is closed again, or its pages would stay in memory."""
        with safe_open(self.files[name], framework="pt") as file:
            return file.get_tensor(name)

    def check_same_shape(self, other: ModelFiles) -> None:
        """Raise InputError with the first tensor that the other model has not, or has in another shape."""
        for name in sorted(self.shapes.keys() | other.shapes.keys()):
            shape, other_shape = self.shapes.get(name), other.shapes.get(name)
            if shape != other_shape:
                raise InputError(
                    f"models of two shapes cannot be merged: {name} is {_shape_text(shape)} in {self.folder} and "
                    f"{_shape_text(other_shape)} in {other.folder}"
                )


def _shape_text(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else str(list(shape))


def write_tensors(source: Path, target: Path, tensor_of: Callable[[str], torch.Tensor]) -> None:
    """Write a file with the tensors that `source` has, in the same order, types and shapes, of other values: `tensor_of` their names.

    The format: the length of the header (8 bytes), the header (JSON), the tensors (github.com/huggingface/safetensors). Its library
    writes a file only from tensors that are all in memory.
    """
    with source.open("rb") as read, target.open("wb") as written:
        length = read.read(8)
        header = read.read(int.from_bytes(length, "little"))
        written.write(length + header)
        entries = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
        for name in sorted(entries, key=lambda name: entries[name]["data_offsets"]):
            tensor = tensor_of(name).contiguous().reshape(-1)
            written.write(tensor.view(torch.uint8).numpy().data)
    if source.stat().st_size != target.stat().st_size:
        raise RuntimeError(f"{target.name} does not have the size of {source}")
