"""The weights of a GGUF file as safetensors, some rows at a time: memory has a fixed bound, whatever the model.

Each tensor is stored in the type that holds its values exactly: 16 and 32 bits as they are, quantized ones dequantized to fp32.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

from crawl2llm.training.published.gguf_file import StoredTensor

PIECE_BYTES = 16 << 20  # of dequantized rows that are in memory at a time
PLAIN = {"F32": 4, "F16": 2, "BF16": 2}  # bytes of a value; copied as they are, under the same names in safetensors


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A tensor of the model, made of one in the file."""

    stored: StoredTensor
    # Rows of a head, where llama.cpp's converter put its two halves in turns, as its rotary positions want them; 0: as they are.
    head: int = 0

    @property
    def type(self) -> str:
        """Its type in safetensors."""
        return self.stored.type if self.stored.type in PLAIN else "F32"


def write_safetensors(file: Path, source: Path, weights: Mapping[str, Weight]) -> None:
    """Write the tensors of a GGUF file as safetensors. weights: by their names there. Raises OSError."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, weight in weights.items():
        size = prod(weight.stored.shape) * PLAIN[weight.type]
        entries[name] = {"dtype": weight.type, "shape": list(weight.stored.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with source.open("rb") as data, file.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for weight in weights.values():
            data.seek(weight.stored.offset)
            for piece in pieces(data, weight):
                out.write(piece)


def pieces(data: BinaryIO, weight: Weight) -> Iterator[bytes]:
    """A weight's values in order, PIECE_BYTES of them at a time. data: the open file, at the tensor's beginning."""
    import numpy as np  # a plan, which needs no weights, reads this module
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    stored, vector = weight.stored, len(weight.stored.shape) == 1
    # A vector's values are its rows, where halves of heads change places (biases).
    row_bytes = stored.row_bytes // stored.shape[-1] if vector and stored.type in PLAIN else stored.row_bytes
    rows = stored.shape[-1] if vector and stored.type in PLAIN else stored.rows
    whole = weight.head or 1
    step = max(1, PIECE_BYTES // (4 * (1 if vector else stored.shape[-1])) // whole) * whole
    for first in range(0, rows, step):
        count = min(step, rows - first)
        raw = np.fromfile(data, np.uint8, count * row_bytes).reshape(count, row_bytes)
        if weight.head:
            raw = raw.reshape(-1, weight.head // 2, 2, row_bytes).swapaxes(1, 2).reshape(count, row_bytes)
        values = raw if stored.type in PLAIN else dequantize(raw, GGMLQuantizationType[stored.type])
        yield values.tobytes()
