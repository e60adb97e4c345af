"""Decisions by many small trees, in whole numbers: the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawl2llm.stages.ingest import compiled


@dataclass(frozen=True)
class Forest:
    """Complete trees of one depth. measures[t, k] and limits[t, k]: node k of tree t asks whether a measure is over a limit.

    Node 0 is the root; behind a no of node k comes node 2k + 1, behind a yes 2k + 2. leaves[t, j]: what the j-th leaf of tree t, from
    the noes to the yeses, adds to the score.
    """

    measures: NDArray[np.int32]
    limits: NDArray[np.int16]
    leaves: NDArray[np.int16]
    base: int

    @staticmethod
    def from_json(stored: dict[str, Any], names: list[str]) -> Forest:
        """From JSON. names: of the rows that it will be given, among them all that it asks for."""
        trees = stored["trees"]
        rows = np.array([names.index(name) for name in stored["names"]] or [0], np.int32)
        return Forest(
            rows[[tree["measures"] for tree in trees]],
            np.array([tree["limits"] for tree in trees], np.int16),
            np.array([tree["leaves"] for tree in trees], np.int16),
            stored["base"],
        )

    def scores(self, rows: NDArray[np.int16]) -> NDArray[np.int64]:
        """rows[m, n]: measure m of block n. The score of each block, which is over zero for main text."""
        totals = compiled.scores(np.ascontiguousarray(rows), self.measures, self.limits, self.leaves, self.base)
        return np.frombuffer(totals, np.int64)
