"""Megatron's indexed dataset, version 1: a `.bin` of token ids and a `.idx` that says where each sequence is.

Layout after Megatron-LM, megatron/core/datasets/indexed_dataset.py: magic, u64 version, u8 dtype code, u64 sequences, u64
documents, i32 length of each sequence, i64 byte offset of each, i64 sequence index at which each document starts (and the end).
Here every document is one sequence. A dataset without tokens has no files: an empty `.bin` cannot be mapped.
"""

from __future__ import annotations

import resource
import struct
from bisect import bisect_right
from pathlib import Path
from types import TracebackType

import numpy as np

from crawl2llm.core.errors import InputError

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
DTYPES: dict[int, np.dtype] = {4: np.dtype(np.int32), 8: np.dtype(np.uint16)}
CODES = {dtype: code for code, dtype in DTYPES.items()}


def token_dtype(vocabulary: int) -> np.dtype:
    """uint16 where every id fits, else int32 (Megatron's own choice: up to 65,500 entries)."""
    return np.dtype(np.uint16) if vocabulary < 65500 else np.dtype(np.int32)


class IndexedWriter:
    """Writes `<stem>.bin` as documents come, and `<stem>.idx` at the end. Use as a context manager."""

    def __init__(self, stem: Path, dtype: np.dtype) -> None:
        self.stem, self.dtype = stem, dtype
        self.sizes: list[int] = []
        stem.parent.mkdir(parents=True, exist_ok=True)
        self.stream = stem.with_suffix(".bin").open("wb")

    def add(self, tokens: np.ndarray) -> None:
        """Append one document's ids, shape [tokens]."""
        self.stream.write(tokens.astype(self.dtype, copy=False).tobytes())
        self.sizes.append(len(tokens))

    def __enter__(self) -> IndexedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.close()
        if kind is not None:
            return
        if not any(self.sizes):
            for suffix in (".bin", ".idx"):
                self.stem.with_suffix(suffix).unlink(missing_ok=True)
            return
        sizes = np.array(self.sizes, dtype=np.int32)
        ends = np.cumsum(sizes, dtype=np.int64) * self.dtype.itemsize
        pointers = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
        with self.stem.with_suffix(".idx").open("wb") as out:
            out.write(HEADER.pack(MAGIC, 1, CODES[self.dtype], len(sizes), len(sizes) + 1))
            out.write(sizes.tobytes() + pointers.astype(np.int64).tobytes())
            out.write(np.arange(len(sizes) + 1, dtype=np.int64).tobytes())


def most_open_datasets() -> int:
    """How many datasets to have open at a time: a mapped file holds a descriptor, of which many systems give a process 1,024.

    A quarter of them, for training reads two such sets, and more files than these. At most 16,384: Linux gives a process 65,530
    maps (vm.max_map_count).
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 16_384 if limit == resource.RLIM_INFINITY else max(16, min(limit // 4, 16_384))


def document_start(idx_path: Path, token: int) -> int:
    """The first token of the document that holds a token of a dataset that `open_indexed` takes: a binary search in the index."""
    with idx_path.open("rb", buffering=0) as handle:
        _, _, code, sequences, _ = HEADER.unpack(handle.read(HEADER.size))
        size = DTYPES[code].itemsize

        def start_of(number: int) -> int:
            handle.seek(HEADER.size + 4 * sequences + 8 * number)
            return int.from_bytes(handle.read(8), "little") // size

        return start_of(bisect_right(range(sequences), token, key=start_of) - 1)


def open_indexed(bin_path: Path, idx_path: Path) -> np.ndarray:
    """The tokens of one indexed dataset as a read-only memory map, 1-dimensional, uint16 or int32.

    Raises InputError if the index is not Megatron's version 1 or does not agree with the `.bin`.
    """
    with idx_path.open("rb") as handle:
        head = handle.read(HEADER.size)
        if len(head) < HEADER.size or not head.startswith(MAGIC):
            raise InputError(f"{idx_path} is not a Megatron index: it does not begin with {MAGIC!r}")
        _, version, code, sequences, documents = HEADER.unpack(head)
        if version != 1 or code not in DTYPES:
            raise InputError(
                f"{idx_path} has version {version} and type code {code}; version 1 with 4 (int32) or 8 (uint16) is read"
            )
        if idx_path.stat().st_size != HEADER.size + 12 * sequences + 8 * documents:
            raise InputError(f"{idx_path} is cut off: {sequences} sequences and {documents} documents do not fit in it")
        end = 0
        if sequences:
            handle.seek(HEADER.size + 4 * (sequences - 1))
            (size,) = struct.unpack("<i", handle.read(4))
            handle.seek(HEADER.size + 4 * sequences + 8 * (sequences - 1))
            (pointer,) = struct.unpack("<q", handle.read(8))
            end = pointer + size * DTYPES[code].itemsize
    if bin_path.stat().st_size != end:
        raise InputError(f"{bin_path} has {bin_path.stat().st_size} bytes; its index {idx_path.name} says {end}")
    # numpy refuses to map an empty file.
    return np.memmap(bin_path, DTYPES[code], mode="r") if end else np.empty(0, DTYPES[code])
