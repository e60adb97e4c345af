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

from crawl2llm.core.manifest import Manifest
from crawl2llm.formats.documents import batches
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


def document_ids(manifests: Iterable[Path], windows: npt.ArrayLike, context: int) -> list[str]:
    """The ids of the documents that any of `windows` of the training stream holds tokens of, in the stream's order."""
    starts = np.unique(np.asarray(windows, np.int64).ravel()) * context
    ids: list[str] = []
    base = 0
    for path in sorted(manifests):
        manifest = Manifest.read(path)
        for name in sorted(n for n in manifest.files if n.startswith("train/") and n.endswith(".bin")):
            stem = name.removesuffix(".bin")
            size = len(open_indexed(manifest.file(name), manifest.file(f"{stem}.idx")))
            if _spans_in_windows(starts, context, np.array([base]), np.array([base + size])).any():
                for batch in batches(manifest.file(f"{stem}.docs.parquet"), ["id", "offset", "tokens"]):
                    first = base + batch.column("offset").to_numpy()
                    mine = _spans_in_windows(starts, context, first, first + batch.column("tokens").to_numpy())
                    ids += batch.column("id").filter(mine).to_pylist()
            base += size
    return ids


def _spans_in_windows(starts: Tokens, context: int, first: Tokens, end: Tokens) -> npt.NDArray[np.bool_]:
    """Which of the spans [first, end) of tokens share one with a window [start, start + context + 1)."""
    # The first window that ends behind a span's start; `starts` are sorted, and so are the windows' ends.
    number = np.searchsorted(starts + context + 1, first, side="right")
    begins = np.append(starts, np.iinfo(np.int64).max)[number]
    return begins < end


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
