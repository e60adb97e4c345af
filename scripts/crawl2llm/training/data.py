"""The token stream: the shards' indexed datasets as one, windows of fixed length, and an order that depends on the seed alone.

The shards' training tokens, in the order of the shards and within a shard in that of its sources' names, are one stream.
Window i is the `context + 1` tokens from i · context on: inputs are all but the last, targets all but the first, so that
every token but the stream's first is predicted once in an epoch (the rest of less than a window is left out). Documents
are packed: a window crosses their borders, which the end-of-text token marks, and attention does too, as in GPT-3
(Brown et al. 2020, https://arxiv.org/abs/2005.14165, appendix B).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.megatron import most_open_datasets, open_indexed

ROUNDS = 6  # of the Feistel network; Luby and Rackoff 1988 need 4 for a strong pseudorandom permutation

Tokens = npt.NDArray[np.int64]


class Stream:
    """Several indexed datasets read as one. files: (`.bin`, `.idx`) of each; the files must not change while it is used.

    Raises InputError for one that is damaged, see `open_indexed`.
    """

    def __init__(self, files: Iterable[tuple[Path, Path]]) -> None:
        self.parts: list[tuple[Path, np.dtype]] = []
        sizes = []
        for pair in files:
            dataset = open_indexed(*pair)
            if len(dataset):
                self.parts.append((pair[0], dataset.dtype))
                sizes.append(len(dataset))
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._part = lru_cache(most_open_datasets())(lambda number: np.memmap(*self.parts[number], mode="r"))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def read(self, start: int, count: int) -> Tokens:
        """The tokens [start, start + count) as int64."""
        out = np.empty(count, np.int64)
        shard, filled = int(np.searchsorted(self.starts, start, side="right")) - 1, 0
        while filled < count:
            inside = start + filled - int(self.starts[shard])
            piece = self._part(shard)[inside : inside + count - filled]
            out[filled : filled + len(piece)] = piece
            filled, shard = filled + len(piece), shard + 1
        return out


def open_split(manifests: Iterable[Path], split: str) -> Stream:
    """The stream of `train` or `validation` over the manifests of tokenize.encode, in the order of their names, then of the sources'."""
    files = []
    for path in sorted(manifests):
        manifest = Manifest.read(path)
        names = sorted(name for name in manifest.files if name.startswith(f"{split}/") and name.endswith(".bin"))
        files += [(manifest.file(name), manifest.file(f"{name[:-4]}.idx")) for name in names]
    return Stream(files)


def count_windows(stream: Stream, context: int) -> int:
    """How many windows of so many tokens a stream has. Raises InputError if it does not hold one."""
    if (number := (len(stream) - 1) // context) < 1:
        raise InputError(f"the training shards hold {len(stream):,} tokens, too few for one window of {context}")
    return number


def permute(positions: npt.ArrayLike, size: int, seed: int, epoch: int) -> Tokens:
    """Where each position in [0, size) goes under the permutation of (seed, epoch).

    A Feistel network over the next even number of bits, walked until it falls back into [0, size) (Black and Rogaway
    2002, "Ciphers with arbitrary finite domains"): no table, so that a stream of any length costs no memory, and no
    dependence on a random generator whose stream a library may change.
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    keys = [np.uint64(xxhash.xxh3_64_intdigest(f"window\x1f{epoch}\x1f{n}".encode(), seed=seed)) for n in range(ROUNDS)]
    out = np.atleast_1d(np.asarray(positions, np.uint64)).copy()
    outside = np.ones(out.shape, bool)
    while outside.any():
        left, right = out[outside] >> half, out[outside] & mask
        for key in keys:
            left, right = right, left ^ (_mix_bits(right ^ key) & mask)
        out[outside] = (left << half) | right
        outside = out >= np.uint64(size)
    return out.astype(np.int64)


def _mix_bits(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def windows_from(first: int, sequences: int, windows: int, seed: int) -> Tokens:
    """The windows of a global batch: shape [sequences], the same for any number of processes. first: sequences of the steps before.

    The permuted epochs follow one another without a gap, so a batch may hold the end of one and the start of the next.
    """
    order = np.arange(first, first + sequences, dtype=np.int64)
    epochs, positions = order // windows, order % windows
    out = np.empty(sequences, np.int64)
    for epoch in np.unique(epochs):
        in_epoch = epochs == epoch
        out[in_epoch] = permute(positions[in_epoch], windows, seed, int(epoch))
    return out


def process_share(batch: Tokens, rank: int, processes: int, micro_batch: int) -> Tokens:
    """This process's part of a global batch, shape [accumulation, micro_batch]; the batch's order is kept."""
    return batch.reshape(-1, processes, micro_batch)[:, rank]


def read_windows(stream: Stream, windows: Tokens, context: int) -> Tokens:
    """The tokens of windows [n, m], shape [n, m, context + 1]."""
    flat = [stream.read(int(window) * context, context + 1) for window in windows.ravel()]
    return np.stack(flat).reshape(*windows.shape, context + 1)


def window_places(windows: npt.ArrayLike, context: int) -> list[tuple[int, int]]:
    """The places [start, end) of windows in the stream."""
    return [(start, start + context + 1) for start in (np.asarray(windows, np.int64).ravel() * context).tolist()]


def windows_holding(start: int, end: int, context: int, windows: int) -> Tokens:
    """Those of the first `windows` windows that hold any of the tokens [start, end)."""
    first = max(0, -(-start // context) - 1)
    return np.arange(first, min((end - 1) // context + 1, windows), dtype=np.int64)


class ReadAhead:
    """Gives the batch of a step, and begins to read that of the next one in a thread. read: reads the batch of a step."""

    def __init__(self, read: Callable[[int], Any]) -> None:
        self.read, self.thread = read, ThreadPoolExecutor(1)
        self.following: tuple[int, Future[Any]] | None = None

    def __call__(self, step: int) -> Any:
        """The batch of a step; raises what `read` raises."""
        if self.following is None or self.following[0] != step:  # the first step, or the first after a roll back
            self.following = step, self.thread.submit(self.read, step)
        batch = self.following[1].result()
        self.following = step + 1, self.thread.submit(self.read, step + 1)
        return batch

    def close(self) -> None:
        """Wait for the batch that is being read, and forget it."""
        if self.following is not None:
            wait([self.following[1]])
            self.following = None
