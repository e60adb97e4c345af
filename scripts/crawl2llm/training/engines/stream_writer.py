"""Write a process's part of a checkpoint as safetensors, one tensor after another.

torch's HuggingFaceStorageWriter builds the whole file in memory (checkpoint/filesystem.py, _write_files_from_queue: safetensors' `save`):
twice the state beside the state, and on a GPU all of it in the node's memory first. Here the header is written from the plan, then each
tensor's bytes. The files are those of safetensors' `save`, except that the header's metadata always have the same order.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

import torch
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

# safetensors' names of dtypes, in the order of its files: largest alignment first (safetensors/src/tensor.rs, Dtype and prepare).
DTYPES = {
    torch.int64: "I64", torch.float64: "F64", torch.float32: "F32", torch.int32: "I32", torch.bfloat16: "BF16", torch.float16: "F16",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
ALIGNMENT = 8  # of the header's end, which is filled up with spaces
PIECE = 1 << 26  # bytes that are copied from a GPU at once


class StreamWriter(HuggingFaceStorageWriter):
    """Writes what its plan says, a file for each process; each file is on the disk (fsync) when it returns."""

    def __init__(self, folder: str | Path) -> None:
        super().__init__(str(folder), save_distributed=True)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """As torch's, with the same name of the file, which is the `storage_data` of each result."""
        name = f"shard-{plan.storage_data['shard_index']:05d}-model-00001-of-00001.safetensors"
        if plan.items:
            with self.fs.create_stream(self.fs.concat_path(self.path, name), "wb") as stream:
                write_tensors(stream, planner, plan.items)  # type: ignore[arg-type]
                stream.flush()
                os.fsync(stream.fileno())
        future: Future[list[WriteResult]] = Future()
        future.set_result([WriteResult(item.index, item_bytes(item), name) for item in plan.items])
        return future


def chunk_of(item: WriteItem) -> tuple[torch.Size, torch.Size, TensorProperties]:
    """(shape, offsets in the whole tensor, properties) of the part of a tensor that a plan has this process write."""
    assert item.tensor_data is not None
    return item.tensor_data.chunk.sizes, item.tensor_data.chunk.offsets, item.tensor_data.properties


def item_bytes(item: WriteItem) -> int:
    """The size of the part of a tensor that a plan has this process write."""
    shape, _, properties = chunk_of(item)
    return shape.numel() * properties.dtype.itemsize


def write_tensors(stream: IO[bytes], planner: SavePlanner, items: list[WriteItem]) -> None:
    """Write a file of safetensors with the planner's tensors for `items`; beside them it keeps PIECE bytes at most."""
    order = list(DTYPES)
    items = sorted(items, key=lambda item: (order.index(chunk_of(item)[2].dtype), item.index.fqn.encode()))
    stream.write(header(items))
    staging = None
    for item in items:
        tensor = planner.resolve_data(item)
        assert isinstance(tensor, torch.Tensor) and tensor.nbytes == item_bytes(item)
        raw = tensor.detach().contiguous().flatten().view(torch.uint8)
        if raw.is_cpu:
            stream.write(raw.numpy().data)
            continue
        for part in raw.split(PIECE):
            staging = torch.empty(PIECE, dtype=torch.uint8, pin_memory=True) if staging is None else staging
            stream.write(staging[: len(part)].copy_(part).numpy().data)


def header(items: list[WriteItem]) -> bytes:
    """The beginning of a file that has `items` in this order: the header's length, and where each tensor is and what part of which."""
    offsets = {item.index.fqn: {"saved_offsets": chunk_of(item)[1]} for item in items}
    entries: dict[str, Any] = {
        "__metadata__": {"DCP_SHARDING_INFO": json.dumps(offsets), "DCP_VERSION": "1.0", "format": "pt"}
    }
    end = 0
    for item in items:
        shape, _, properties = chunk_of(item)
        start, end = end, end + item_bytes(item)
        entries[item.index.fqn] = {"dtype": DTYPES[properties.dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
