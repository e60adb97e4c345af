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
from crawl2llm.formats.external_partition import Spill, count_parts

CHUNK = 1 << 16  # pairs as Python numbers at a time
HELD_PAIRS = 1 << 24  # decided at a time, about 100 bytes each
EDGE = np.dtype([("low", "i8"), ("high", "i8"), ("similarity", "f8")])  # documents numbered by priority: high < low

Edges = npt.NDArray[np.void]
Reader = Callable[[], Iterable[Edges]]  # all pairs that pass, in pieces


def choose_greedily(
    low: Numbers, high: Numbers, similarity: npt.NDArray, nodes: int
) -> tuple[Numbers, npt.NDArray[np.float64]]:
    """Which documents go, and for which: (keeper, similarity), (nodes,) each; keeper −1 where a document stays.

    Documents are numbered by priority, 0 first, so that high < low in every pair. Pairs may come in any order.
    """
    keeper, value = np.full(nodes, -1, np.int64), np.full(nodes, np.nan)
    # Within a document the best partner first: the most similar, then the one of highest priority.
    order = np.lexsort((high, -similarity, low))
    is_dropped = bytearray(nodes)
    for start in range(0, len(order), CHUNK):
        part = order[start : start + CHUNK]
        for lower, higher, measured in zip(
            low[part].tolist(), high[part].tolist(), similarity[part].tolist(), strict=True
        ):
            # All pairs of `higher` as the lower document came before: its fate is settled.
            if not is_dropped[lower] and not is_dropped[higher]:
                is_dropped[lower] = 1
                keeper[lower], value[lower] = higher, measured
    return keeper, value


def component_labels(edges: Iterable[Edges], nodes: int) -> npt.NDArray[np.int32]:
    """The number of each document's connected component, (nodes,); one piece of the pairs in memory at a time."""
    from scipy.sparse import coo_array  # here: a small corpus needs neither
    from scipy.sparse.csgraph import connected_components

    label = np.arange(nodes, dtype=np.int32)
    for piece in edges:
        ends = label[piece["low"]], label[piece["high"]]
        graph = coo_array((np.ones(len(piece), np.int8), ends), shape=(nodes, nodes))
        label = connected_components(graph, directed=False)[1][label]
    return label


def choose_by_component(
    edges: Reader, number: int, nodes: int, folder: Path, pairs_held: int = HELD_PAIRS
) -> tuple[Numbers, npt.NDArray[np.float64]]:
    """What `choose_greedily` gives for all pairs, with about `pairs_held` of them in memory: whole components at a time, however many those
    are.

    edges: reads the pairs, `number` of them, (each call from the start). folder: for the pairs by component.
    """
    parts = count_parts(number, pairs_held)
    by_component = Spill(folder, parts, EDGE)
    label = component_labels(edges(), nodes) if parts > 1 else np.zeros(nodes, np.int32)
    for edge_rows in edges():
        by_component.add(label[edge_rows["low"]] % parts, edge_rows)
    del label
    keeper, value = np.full(nodes, -1, np.int64), np.full(nodes, np.nan)
    for part in range(parts):
        edge_rows = by_component.part(part)
        documents, ends = np.unique(np.concatenate((edge_rows["low"], edge_rows["high"])), return_inverse=True)
        low, high = ends.reshape(2, -1)
        part_keepers, measured = choose_greedily(low, high, edge_rows["similarity"], len(documents))
        is_dropped = part_keepers >= 0
        keeper[documents[is_dropped]] = documents[part_keepers[is_dropped]]
        value[documents[is_dropped]] = measured[is_dropped]
    return keeper, value
