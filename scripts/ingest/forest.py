"""Decisions by many small trees, in whole numbers: the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOGETHER = 2048  # blocks that are judged at once, which bounds memory


@dataclass(frozen=True)
class Forest:
    """Complete trees of one depth. measures[k, t] and limits[k, t]: node k of tree t asks whether a measure is over a limit.

    Node 0 is the root; behind a no of node k comes node 2k + 1, behind a yes 2k + 2. leaves[j, t]: what the j-th leaf of tree t, from
    the noes to the yeses, adds to the score. names: of the measures.
    """

    names: list[str]
    measures: NDArray[np.intp]
    limits: NDArray[np.int16]
    leaves: NDArray[np.int16]
    base: int

    @staticmethod
    def of(stored: dict[str, Any]) -> Forest:
        """From JSON."""
        trees = stored["trees"]
        return Forest(
            stored["names"],
            np.array([tree["measures"] for tree in trees], np.intp).T,
            np.array([tree["limits"] for tree in trees], np.int16).T,
            np.array([tree["leaves"] for tree in trees], np.int16).T,
            stored["base"],
        )

    def scores(self, rows: NDArray[np.int16]) -> NDArray[np.int64]:
        """rows[m, n]: measure m of block n. The score of each block, which is over zero for main text."""
        count = rows.shape[1]
        return np.concatenate([self._scores(rows[:, at : at + TOGETHER]) for at in range(0, max(count, 1), TOGETHER)])

    def _scores(self, rows: NDArray[np.int16]) -> NDArray[np.int64]:
        nodes, trees = self.measures.shape
        over = (rows[self.measures.ravel()] > self.limits.reshape(-1, 1)).reshape(nodes, trees, -1)
        below = np.broadcast_to(self.leaves[:, :, None], (*self.leaves.shape, rows.shape[1]))
        while nodes:
            level = (nodes + 1) // 2
            below = np.where(over[nodes - level : nodes], below[1::2], below[0::2])
            nodes -= level
        return self.base + below[0].sum(axis=0, dtype=np.int64)
