"""Which tokens a step of pre-training reads: the stream's windows, windows packed by best fit, or those of a mix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from crawl2llm.core.errors import InputError
from crawl2llm.core.manifest import Manifest
from crawl2llm.training import data
from crawl2llm.training.data import Stream, Tokens
from crawl2llm.training.mix_reader import MixReader
from crawl2llm.training.packed_windows import BEST_FIT, KEY, Packing, read_totals
from crawl2llm.training.schedule import Plan


class WindowReader(Protocol):
    """The windows of `context + 1` tokens that a run reads, by number."""

    def windows_at(self, first: int, count: int) -> Tokens:
        """The windows of a global batch: shape [count], the same for any number of processes. first: windows of the steps before."""

    def read(self, windows: Tokens) -> Tokens:
        """The tokens of windows [n, m], shape [n, m, context + 1]."""

    def places(self, windows: Tokens) -> list[tuple[int, int]]:
        """The places [start, end) of the stream that windows [n] hold, window by window; of packed ones without the token before."""

    def windows_holding(self, start: int, end: int) -> Tokens:
        """The windows, in order, that hold any of the tokens [start, end) of the stream."""


class StreamReader:
    """The stream, cut every `context` tokens."""

    def __init__(self, stream: Stream, plan: Plan, seed: int) -> None:
        self.stream, self.plan, self.seed = stream, plan, seed

    def windows_at(self, first: int, count: int) -> Tokens:
        """See WindowReader."""
        return data.windows_from(first, count, self.plan.windows, self.seed)

    def read(self, windows: Tokens) -> Tokens:
        """See WindowReader."""
        return data.read_windows(self.stream, windows, self.plan.context)

    def places(self, windows: Tokens) -> list[tuple[int, int]]:
        """See WindowReader."""
        return data.window_places(windows, self.plan.context)

    def windows_holding(self, start: int, end: int) -> Tokens:
        """See WindowReader."""
        return data.windows_holding(start, end, self.plan.context, self.plan.windows)


class PackedReader:
    """The stream's documents, packed by best fit."""

    def __init__(self, packing: Packing, seed: int) -> None:
        self.packing, self.seed = packing, seed

    def windows_at(self, first: int, count: int) -> Tokens:
        """See WindowReader."""
        return data.windows_from(first, count, len(self.packing), self.seed)

    def read(self, windows: Tokens) -> Tokens:
        """See WindowReader."""
        return np.stack([self.packing.read(window) for window in windows.ravel().tolist()]).reshape(*windows.shape, -1)

    def places(self, windows: Tokens) -> list[tuple[int, int]]:
        """See WindowReader."""
        pieces = (piece for window in windows.tolist() for piece in self.packing.window_pieces(window))
        return [(start, start + size) for start, size in pieces]

    def windows_holding(self, start: int, end: int) -> Tokens:
        """See WindowReader."""
        return self.packing.windows_holding(start, end)


def open_reader(
    packing: str, stream: Stream, plan: Plan, seed: int, mix: Sequence[Path] = (), packs: Sequence[Path] = ()
) -> StreamReader | PackedReader | MixReader:
    """What reads the windows of a run. packing: pretrain.train.packing. mix, packs: the manifest of pretrain.mix or pretrain.pack, if the
    run has it.

    Raises InputError for one of another stream, context, packing or number of windows.
    """
    if mix:
        return MixReader(mix[0], stream, plan, seed, packing)
    if packing != BEST_FIT:
        return StreamReader(stream, plan, seed)
    if not packs:
        raise InputError(f"{KEY} is {packing}, and --packs names no manifest of pretrain.pack")
    if (tokens := read_totals(packs, plan.context)["tokens"]) != len(stream):
        raise InputError(
            f"{packs[0]} was made of {tokens:,} tokens, and this training has {len(stream):,}: run its step again"
        )
    return PackedReader(Packing(Manifest.read(packs[0]), stream, plan.context), seed)
