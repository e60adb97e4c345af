"""Which documents go: the greedy choice among documents in the order of their priority, one connected component after the other.

A document is dropped if and only if some document of higher priority is kept and their similarity passes (the lexicographically first
maximal independent set of the graph of pairs). No pair leads out of a connected component, so each can be decided by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crawl2llm.formats.document_numbers import Numbers
from crawl2llm.formats.external_partition import Spill, ranges

CHUNK = 1 << 16  # pairs as Python numbers at a time
HELD_PAIRS = 1 << 24  # decided at a time, about 100 bytes each
EDGE = np.dtype([("low", "i8"), ("high", "i8"), ("similarity", "f8")])  # documents numbered by priority: high < low

Edges = npt.NDArray[np.void]
Reader = Callable[[], Iterable[Edges]]  # all pairs that pass, in pieces


def greedy(low: Numbers, high: Numbers, similarity: npt.NDArray, nodes: int) -> tuple[Numbers, npt.NDArray[np.float64]]:
    """Which documents go, and for which: (keeper, similarity), (nodes,) each; keeper −1 where a document stays.

    Documents are numbered by priority, 0 first, so that high < low in every pair. Pairs may come in any order.
    """
    keeper, value = np.full(nodes, -1, np.int64), np.full(nodes, np.nan)
    # Within a document the best partner first: the most similar, then the one of highest priority.
    order = np.lexsort((high, -similarity, low))
    gone = bytearray(nodes)
    for start in range(0, len(order), CHUNK):
        part = order[start : start + CHUNK]
        for one, other, measured in zip(
            low[part].tolist(), high[part].tolist(), similarity[part].tolist(), strict=True
        ):
            # All pairs of `other` as the lower document came before: its fate is settled.
            if not gone[one] and not gone[other]:
                gone[one] = 1
                keeper[one], value[one] = other, measured
    return keeper, value


def labels(edges: Iterable[Edges], nodes: int) -> npt.NDArray[np.int32]:
    """The number of each document's connected component, (nodes,); one piece of the pairs in memory at a time."""
    from scipy.sparse import coo_array  # here: a small corpus needs neither
    from scipy.sparse.csgraph import connected_components

    label = np.arange(nodes, dtype=np.int32)
    for some in edges:
        ends = label[some["low"]], label[some["high"]]
        graph = coo_array((np.ones(len(some), np.int8), ends), shape=(nodes, nodes))
        label = connected_components(graph, directed=False)[1][label]
    return label


def decided(
    edges: Reader, number: int, nodes: int, folder: Path, held: int = HELD_PAIRS
) -> tuple[Numbers, npt.NDArray[np.float64]]:
    """What `greedy` gives for all pairs, with about `held` of them in memory: whole components at a time, however many those are.

    edges: reads the pairs, `number` of them, (each call from the start). folder: for the pairs by component.
    """
    parts = ranges(number, held)
    aside = Spill(folder, parts, EDGE)
    label = labels(edges(), nodes) if parts > 1 else np.zeros(nodes, np.int32)
    for some in edges():
        aside.add(label[some["low"]] % parts, some)
    del label
    keeper, value = np.full(nodes, -1, np.int64), np.full(nodes, np.nan)
    for part in range(parts):
        some = aside.part(part)
        own, ends = np.unique(np.concatenate((some["low"], some["high"])), return_inverse=True)
        low, high = ends.reshape(2, -1)
        kept, measured = greedy(low, high, some["similarity"], len(own))
        gone = kept >= 0
        keeper[own[gone]], value[own[gone]] = own[kept[gone]], measured[gone]
    return keeper, value
