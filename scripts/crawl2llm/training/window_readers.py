"""Which tokens a step of pre-training reads: the stream's windows, windows packed by best fit, or those of a mix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crawl2llm.training import data
from crawl2llm.training.data import Stream, Tokens
from crawl2llm.training.mix_reader import MixReader, piece_document_ids
from crawl2llm.training.packing import BEST_FIT, Packing
from crawl2llm.training.schedule import Plan


class WindowReader(Protocol):
    """The windows of `context + 1` tokens that a run reads, by number."""

    def windows_at(self, first: int, count: int) -> Tokens:
        """The windows of a global batch: shape [count], the same for any number of processes. first: windows of the steps before."""

    def read(self, windows: Tokens) -> Tokens:
        """The tokens of windows [n, m], shape [n, m, context + 1]."""

    def document_ids(self, tokens: Iterable[Path], windows: npt.ArrayLike) -> list[str]:
        """The ids of the documents that any of `windows` holds tokens of, in the stream's order. tokens: manifests of tokenize.encode."""

    def packing_totals(self) -> dict[str, int]:
        """What `best_fit` made of the documents: `packing.Packing.totals` of all; {} for `stream`."""


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

    def document_ids(self, tokens: Iterable[Path], windows: npt.ArrayLike) -> list[str]:
        """See WindowReader."""
        return data.document_ids(tokens, windows, self.plan.context)

    def packing_totals(self) -> dict[str, int]:
        """See WindowReader."""
        return {}


class PackedReader:
    """The stream's documents, packed by best fit."""

    def __init__(self, packing: Packing, seed: int) -> None:
        self.packing, self.seed = packing, seed

    def windows_at(self, first: int, count: int) -> Tokens:
        """See WindowReader."""
        return self.packing.windows_from(first, count, self.seed)

    def read(self, windows: Tokens) -> Tokens:
        """See WindowReader."""
        flat = [self.packing.read(int(window)) for window in windows.ravel()]
        return np.stack(flat).reshape(*windows.shape, -1)

    def window_pieces(self, window: int) -> Sequence[tuple[int, int]]:
        """See `Packing.window_pieces`."""
        return self.packing.window_pieces(window)

    def windows_holding(self, start: int, end: int) -> Tokens:
        """See `Packing.windows_holding`."""
        return self.packing.windows_holding(start, end)

    def document_ids(self, tokens: Iterable[Path], windows: npt.ArrayLike) -> list[str]:
        """See WindowReader."""
        return piece_document_ids(
            tokens, (piece for window in np.unique(windows) for piece in self.window_pieces(int(window)))
        )

    def packing_totals(self) -> dict[str, int]:
        """See WindowReader."""
        return self.packing.totals


def pack_stream(packing: str, stream: Stream, context: int) -> Packing | None:
    """The documents of the whole stream, packed: an epoch has its windows, whatever mix reads them. None if the stream is cut instead."""
    return Packing(stream, context) if packing == BEST_FIT else None


def open_reader(
    packing: str, stream: Stream, plan: Plan, seed: int, mix: Path | None, packed: Packing | None = None
) -> StreamReader | PackedReader | MixReader:
    """What reads the windows of a run. packing: pretrain.train.packing. mix: the manifest of pretrain.mix, if the run has it. packed: of
    `pack_stream`, if it has been made.

    Raises InputError for a mix of another stream, context, packing or number of windows.
    """
    if mix:
        return MixReader(mix, stream, plan, seed, packing)
    if packed := packed or pack_stream(packing, stream, plan.context):
        return PackedReader(packed, seed)
    return StreamReader(stream, plan, seed)


def manifest_summary(reader: WindowReader) -> dict[str, Any]:
    """For a manifest's summary: what packing made of the documents; {} for the stream."""
    totals = reader.packing_totals()
    return {"packing": totals} if totals else {}
