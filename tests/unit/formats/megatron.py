"""A reader of Megatron's indexed dataset, written from its layout and not from the writer."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float64, 7: np.float32, 8: np.uint16}


def read(stem: Path) -> tuple[np.dtype, list[list[int]]]:
    """(token dtype, the ids of each document); asserts everything that the two files say about each other."""
    index = stem.with_suffix(".idx").read_bytes()
    tokens = np.memmap(stem.with_suffix(".bin"), mode="r", order="C")  # as Megatron opens it
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, documents = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    at = 9 + struct.calcsize("<QBQQ")
    lengths = np.frombuffer(index, "<i4", sequences, at)
    pointers = np.frombuffer(index, "<i8", sequences, at + 4 * sequences)
    starts = np.frombuffer(index, "<i8", documents, at + 12 * sequences)
    assert len(index) == at + 12 * sequences + 8 * documents
    dtype = np.dtype(DTYPES[code])
    assert starts.tolist() == list(range(sequences + 1)), "every document is one sequence"
    assert len(tokens) == int(lengths.sum()) * dtype.itemsize
    assert all(np.diff(pointers) == lengths[:-1].astype(np.int64) * dtype.itemsize)
    pairs = zip(pointers.tolist(), lengths.tolist(), strict=True)
    return dtype, [np.frombuffer(tokens, dtype, length, pointer).tolist() for pointer, length in pairs]
