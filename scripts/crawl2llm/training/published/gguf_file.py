"""The header of a GGUF file: its keys, and where each tensor lies. No weight is read.

The format is https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The file is somebody else's: no size in it is believed beyond the
end of the file.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from crawl2llm.core.errors import InputError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
ALIGNMENT = 32  # bytes, unless general.alignment names others
DIMENSIONS = 4  # of a tensor, at most
# A tensor's type by its number in the file: (name, weights of a block, bytes of a block), as GGML_QUANT_SIZES of gguf has them.
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2),
    2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18), 23: ("IQ4_XS", 256, 136),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor in a GGUF file."""

    name: str
    shape: tuple[int, ...]  # as torch has it: rows first
    type: str  # of TYPES
    offset: int  # bytes from the beginning of the file
    row_bytes: int  # of a row, the last dimension

    @property
    def rows(self) -> int:
        """How many rows there are; 1 of a vector."""
        return prod(self.shape[:-1])

    @property
    def end(self) -> int:
        """Where it ends, in bytes from the beginning of the file."""
        return self.offset + self.rows * self.row_bytes


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a GGUF file says before its weights."""

    path: Path
    keys: dict[str, Any]  # text, numbers and lists of them by key
    tensors: dict[str, StoredTensor]

    @property
    def architecture(self) -> str:
        """`general.architecture`, which begins the keys of the model's shape."""
        return str(self.keys.get("general.architecture", ""))

    def of_model(self, key: str, default: Any = None) -> Any:
        """A key of the architecture: `context_length` is `llama.context_length` of a llama."""
        return self.keys.get(f"{self.architecture}.{key}", default)


class _Reader:
    """Reads values one after the other. Raises struct.error behind the end of the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def values(self, code: str, count: int = 1) -> tuple[Any, ...]:
        size = struct.calcsize(f"<{code}") * count
        if size > len(self.data) - self.at:
            raise struct.error("behind the end")
        values = struct.unpack_from(f"<{count}{code}", self.data, self.at)
        self.at += size
        return values

    def number(self, code: str) -> Any:
        return self.values(code)[0]

    def text(self) -> str:
        size = self.number("Q")
        if size > len(self.data) - self.at:
            raise struct.error("behind the end")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.number(SCALARS[kind])
        kind, count = self.number("I"), self.number("Q")
        return [self.text() for _ in range(count)] if kind == STRING else list(self.values(SCALARS[kind], count))


def read_header(path: Path, label: str) -> Header:
    """The header of a GGUF file.

    Raises InputError that begins with `label` for a file that is none, ends too early, or has tensors of a type that is not read.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] != MAGIC:
                raise InputError(f"{label}: {path} is no GGUF file")
            reader, size = _Reader(data), len(data)
            reader.at = len(MAGIC)
            if (version := reader.number("I")) not in VERSIONS:
                raise InputError(
                    f"{label}: {path} is GGUF of version {version}; allowed: {', '.join(map(str, VERSIONS))}"
                )
            tensor_count, key_count = reader.values("Q", 2)
            keys = {}
            for _ in range(key_count):
                name = reader.text()
                keys[name] = reader.value(reader.number("I"))
            entries = [_tensor_entry(reader) for _ in range(tensor_count)]
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{label}: {path} cannot be read ({error.strerror or error})") from error
    except (struct.error, KeyError, ValueError) as error:  # also of an empty file, and of text that is no UTF-8
        raise InputError(f"{label}: the header of {path} is damaged or cut off; fetch the file again") from error
    alignment = keys.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise InputError(f"{label}: {path} has general.alignment {alignment!r}; allowed: 1 or more")
    start = reader.at + -reader.at % alignment
    tensors = {entry[0]: _stored_tensor(entry, start, f"{label}: {path}") for entry in entries}
    if (end := max((tensor.end for tensor in tensors.values()), default=0)) > size:
        raise InputError(f"{label}: {path} is cut off: it has {size:,} bytes of {end:,}; fetch the file again")
    return Header(path=path, keys=keys, tensors=tensors)


def _tensor_entry(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    """(name, shape as the file has it, number of the type, offset behind the header) of a tensor."""
    name, dimensions = reader.text(), reader.number("I")
    if not 0 < dimensions <= DIMENSIONS:
        raise ValueError(f"{dimensions} dimensions")
    return name, reader.values("Q", dimensions), reader.number("I"), reader.number("Q")


def _stored_tensor(entry: tuple[str, tuple[int, ...], int, int], start: int, where: str) -> StoredTensor:
    """A tensor, whose offset counts from `start`. Raises InputError for a type that is not read. where: what an error begins with."""
    name, shape, number, offset = entry
    if number not in TYPES:
        known = ", ".join(kind for kind, _, _ in TYPES.values())
        raise InputError(f"{where}: {name} has the tensor type number {number}, which is not read; allowed: {known}")
    kind, weights, size = TYPES[number]
    if shape[0] % weights:
        raise InputError(f"{where}: {name} has rows of {shape[0]} weights, and {kind} has blocks of {weights}")
    return StoredTensor(
        name=name, shape=shape[::-1], type=kind, offset=start + offset, row_bytes=shape[0] // weights * size
    )
